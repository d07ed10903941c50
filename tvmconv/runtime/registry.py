"""`Registry`: the kernels of one or several bundles, found by shape, type and attributes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import ops
from ..errors import InputError
from ..problem import Problem
from ..signature import format_signature, parse_signature
from .backend import Device
from .bundle import Bundle, read_bundle
from .call_cache import CallCache
from .cuda.kernel import CudaKernel
from .explain import Explanation, explain, not_found
from .family_kernel import Families, FamilyKernel
from .kernel import Kernel
from .nodes import Node, find_node
from .selection import Table, backend_of, backends_of, check_usable, devices_for, parse_device, take_best
from .split import find_split
from .split_kernel import CudaSplitKernel, SplitKernel
from .unverified import check_before_use, warn_unverified

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..ops import BackpropDataAttributes, ConvolutionAttributes

MAX_THREADS = 1024
VERIFY = (None, "first-use")


def load(
    *paths: str | os.PathLike[str], threads: int | None = None, verify: str | None = None, split_batch: bool = False
) -> Registry:
    """Open one or several bundles.

    Parameters
    ----------
    paths
        The bundles' folders. If several have a kernel for one problem, the most specific that a device runs is taken: the
        most CPU features, on a GPU the nearest architecture, then tuned before untuned, then the earlier bundle.
    threads
        Number of threads of each call on the CPU; None: by the number of processors, or ``OMP_NUM_THREADS`` if that is less.
    verify
        ``"first-use"``: a kernel that never ran where it was built or verified (``info.verified`` is None) is compared with
        the reference before its first answer, in this process and at the reference's speed; its call raises VerificationError
        if it is wrong. None: such kernels are used, with a warning when the bundle is loaded.
    split_batch
        Whether a batch without a kernel is split into calls of kernels for other batches of the same problem, the largest
        first, on slices of the arrays. Nothing is copied; the time is the sum of these calls.

    Raises
    ------
    BundleError
        If a folder is no bundle, or its manifest is damaged, foreign or unsafe.
    UnsupportedMachineError
        If all kernels of a bundle need CPU features or a GPU that this machine lacks.
    InputError
        If `threads` is not a positive number, or `verify`, `split_batch` or a path is something else.
    """
    if not paths:
        raise InputError("no bundle was given; give the path of at least one")
    return Registry([read_bundle(path) for path in paths], threads=threads, verify=verify, split_batch=split_batch)


class Registry:
    """The kernels of one or several bundles that this machine can run. Made by :func:`load`.

    It is indexed by signatures, and iterates over them: ``registry[signature]`` is the CPU's kernel, or if there is none that of
    the first GPU with one. Calls run where their arrays are. Calls are safe from several threads, and those of CPU kernels after ``fork``.
    Problems of families, and batches that `split_batch` serves, can be looked up, but are not listed.
    """

    def __init__(
        self,
        bundles: Sequence[Bundle],
        *,
        threads: int | None = None,
        verify: str | None = None,
        split_batch: bool = False,
    ) -> None:
        if threads is not None and (type(threads) is not int or not 1 <= threads <= MAX_THREADS):
            raise InputError(f"threads is {threads!r}; it must be None or a number from 1 to {MAX_THREADS}")
        if verify not in VERIFY:
            raise InputError(f"verify is {verify!r}; allowed: {', '.join(map(repr, VERIFY))}")
        if not isinstance(split_batch, bool):
            raise InputError(f"split_batch is {split_batch!r}; it must be True or False")
        wrong = (
            [bundles] if not isinstance(bundles, (list, tuple)) else [b for b in bundles if not isinstance(b, Bundle)]
        )
        if wrong:
            raise InputError(
                f"bundles must be a list of Bundle, and {wrong[0]!r:.80} was given; to load a bundle's folder: tvmconv.load(path)"
            )
        self.bundles = tuple(bundles)
        self.split_batch = split_batch
        self.threads = threads
        self._verify = verify
        for bundle in self.bundles:
            check_usable(bundle)
        # The GPUs' are made when they are first asked for.
        self._tables: dict[Device, Table] = {}
        self._table(None)
        self._kernels: dict[tuple[str, Device], Kernel | CudaKernel] = {}
        self._families = Families(self.bundles, threads, check_before_use if verify else None)
        if verify is None:
            warn_unverified(self._families.taken)
        self._calls = CallCache(self._lookup_on, len(backends_of(bundles)) > 1)
        self._nodes: dict[tuple[str, str | None], Node] = {}

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(signature for table in self._all_tables().values() for signature in table))

    def __contains__(self, key: object) -> bool:
        """Return whether there is a kernel for a signature or a Problem, on any device."""
        if isinstance(key, Problem):
            key = format_signature(key)
        return isinstance(key, str) and any(key in table for table in self._all_tables().values())

    def __getitem__(self, key: str | Problem) -> Kernel | CudaKernel:
        """Return the kernel of a signature or a Problem; errors as for :meth:`lookup`, and SignatureError."""
        if isinstance(key, str) and key in self._tables[None]:
            return self._kernel(key, None)
        return self.lookup(key if isinstance(key, Problem) else parse_signature(key))

    def lookup(self, problem: Problem, device: Any = None) -> Kernel | CudaKernel:
        """Return the kernel that computes `problem`.

        Parameters
        ----------
        device
            ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or a torch.device. None: the CPU, or if it has no kernel the first GPU with
            one. The batch is split only if no device has a kernel.

        Raises
        ------
        KernelNotFoundError
            Names the nearest kernel, the fields that differ, and the command that builds the missing one.
        UnsupportedMachineError
            If all its kernels need CPU features or GPUs that this machine lacks; or there is no such GPU.
        InputError
            If `problem` is no Problem, or `device` names no device.
        """
        if not isinstance(problem, Problem):
            raise InputError(f"lookup takes a Problem, not {problem!r}; a signature's kernel is registry[signature]")
        signature = format_signature(problem)
        if device is not None:
            return self._lookup_on(problem, parse_device(device))
        if signature in self._tables[None]:
            return self._kernel(signature, None)
        for serve in (self._own, self._family, self._split):
            for place in self._all_tables():
                kernel = serve(problem, place)
                if kernel is not None:
                    return kernel
        raise not_found(self.explain(problem))

    def _lookup_on(self, problem: Problem, device: Device) -> Kernel | CudaKernel:
        kernel = self._own(problem, device) or self._family(problem, device) or self._split(problem, device)
        if kernel is None:
            found = explain(problem, self.bundles, {device: self._table(device)}, self.split_batch)
            raise not_found(found, device)
        return kernel

    def serve(self, problem: Problem, batches: Collection[int]) -> Kernel | None:
        """Return the CPU's kernel of a problem: its own or a split into `batches`, a family's if `batches` is empty; None if there is none."""
        own = self._own(problem, None) if problem.batch in batches else None
        kernel = own or (self._split(problem, None, batches) if batches else self._family(problem, None))
        return kernel if isinstance(kernel, Kernel) else None

    def _own(self, problem: Problem, device: Device) -> Kernel | CudaKernel | None:
        """Return the kernel that was built for this problem."""
        signature = format_signature(problem)
        return self._kernel(signature, device) if signature in self._table(device) else None

    def _family(self, problem: Problem, device: Device) -> FamilyKernel | None:
        """Return the kernel of a family that has the problem."""
        return self._families.kernel(problem) if device is None else None

    def _split(
        self, problem: Problem, device: Device, batches: Collection[int] | None = None
    ) -> Kernel | CudaKernel | None:
        """Return a split of a problem into kernels for other batches, if it is enabled and possible."""
        split = find_split(problem, self._table(device), device, batches) if self.split_batch else None
        if split is None or split.obstacle is not None:
            return None
        # A split without calls still checks and packs the filter by one of the kernels.
        used = [part.batch for part in split.parts] or [split.batches[-1]]
        kernels = [self._kernel(format_signature(problem.with_(batch=batch)), device) for batch in used]
        if device is None:
            return SplitKernel(problem, split, [kernel for kernel in kernels if isinstance(kernel, Kernel)])
        return CudaSplitKernel(problem, split, [kernel for kernel in kernels if isinstance(kernel, CudaKernel)])

    def node(self, name: str, model: str | None = None) -> Node:
        """Return a node of a model; a call ``node(name)(data)`` computes it with the bundle's filter.

        Parameters
        ----------
        name
            Its name in the model.
        model
            The name of the model's file, if several models have a node of that name.

        Raises
        ------
        KernelNotFoundError
            If there is no such node, or there are several.
        InputError
            If `name` or `model` is no text.
        """
        if not isinstance(name, str):
            raise InputError(f"name is {name!r:.80}; it must be a string, the name of a node")
        if not isinstance(model, str | None):
            raise InputError(f"model is {model!r:.80}; it must be a string, the name of a model's file, or None")
        node = self._nodes.get((name, model))
        if node is None:
            node = self._nodes.setdefault((name, model), find_node(self, name, model))
        return node

    def explain(self, problem: Problem | str) -> Explanation:
        """Return which kernel serves a problem or signature on each device, and why variants were taken or rejected."""
        problem = parse_signature(problem) if isinstance(problem, str) else problem
        return explain(problem, self.bundles, self._all_tables(), self.split_batch)

    def _table(self, device: Device) -> Table:
        table = self._tables.get(device)
        if table is None:
            table = self._tables[device] = take_best(self.bundles, device)
            if self._verify is None:
                warn_unverified(table)
        return table

    def _all_tables(self) -> dict[Device, Table]:
        return {device: self._table(device) for device in devices_for(self.bundles)}

    def convolution(
        self,
        data: Any,
        filter: Any,
        bias: Any = None,
        *,
        out: Any = None,
        scale: Any = None,
        slope: Any = None,
        residual: Any = None,
        **attributes: Unpack[ConvolutionAttributes],
    ) -> Any:
        """Compute a Convolution; the attributes are those of :func:`tvmconv.ops.convolution`.

        Operands of the epilogue are `scale` and `slope` (for ``prelu``), f32 factors of each channel, and `residual`, the
        summand of ``add``.

        Returns
        -------
        array
            `out` if given, else a new array of the library of `data`.

        Raises
        ------
        InvalidProblemError
            If the shapes and attributes describe no convolution.
        InputError
            If an array is of a library, type or layout that no kernel takes.
        KernelNotFoundError, UnsupportedMachineError, BundleError
            As for :meth:`lookup` and :class:`tvmconv.Kernel`.
        """
        kernel = self._calls.find(ops.convolution, data, filter, bias, attributes)
        return kernel(data, filter, bias, out, scale=scale, slope=slope, residual=residual)

    def convolution_backprop_data(
        self,
        data: Any,
        filter: Any,
        output_shape: Sequence[int] | None = None,
        bias: Any = None,
        *,
        out: Any = None,
        scale: Any = None,
        slope: Any = None,
        residual: Any = None,
        **attributes: Unpack[BackpropDataAttributes],
    ) -> Any:
        """Compute a ConvolutionBackpropData; the attributes are those of :func:`tvmconv.ops.convolution_backprop_data`.

        Operands of the epilogue, result and errors are those of :meth:`convolution`.
        """
        named = {"output_shape": output_shape, **attributes}
        kernel = self._calls.find(ops.convolution_backprop_data, data, filter, bias, named)
        return kernel(data, filter, bias, out, scale=scale, slope=slope, residual=residual)

    def _kernel(self, signature: str, device: Device) -> Kernel | CudaKernel:
        kernel = self._kernels.get((signature, device))
        if kernel is None:
            bundle, entry = self._table(device)[signature]
            before = check_before_use if self._verify and entry.verified is None else None
            made = backend_of(device).kernel(bundle, entry, self.threads, before)
            kernel = self._kernels.setdefault((signature, device), made)
        return kernel
