"""A model's node in a bundle: a convolution with its own filter, called with data, and a residual if its epilogue adds one."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Collection, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..errors import BundleError, InputError, InvalidProblemError, KernelNotFoundError
from ..family import ProblemFamily
from ..family_text import format_family
from ..problem import Problem
from .arrays import KERNEL_TYPES, LINE_BYTES, result, view
from .bundle import Bundle
from .explain import Explanation, not_found
from .kernel import Kernel
from .node_entries import Blob, NodeEntry
from .packed import PackedFilter, PackedFilters, plain_layout
from .split_kernel import SplitKernel

# Shapes whose kernels are cached; programs use fewer.
_REMEMBERED_SHAPES = 4096


class Kernels(Protocol):
    """Interface of a registry for its nodes."""

    bundles: tuple[Bundle, ...]
    split_batch: bool

    def serve(self, problem: Problem, batches: Collection[int]) -> Kernel | None:
        """Return the kernel of a problem, a split into some of `batches`, or a family's kernel; None if there is none."""

    def explain(self, problem: Problem | str) -> Explanation:
        """Return the kernels nearest to a problem, and why none serves it."""


class Node:
    """A convolution of a model with its own filter, bias and epilogue. Made by :meth:`tvmconv.Registry.node`.

    Its files are checked and mapped into memory at the first call with a shape. It runs on the CPU.

    Parameters
    ----------
    registry
        The registry with its kernels.
    entries
        Its entries in the bundles: one for each shape and type, and families.

    Attributes
    ----------
    name, model : str
        Its name, and the name of the model's file.
    problems : tuple of Problem
        The problems that it was built for; a call takes the `data_shape` of one, and other batches if the registry splits
        them.
    families : tuple of ProblemFamily
        The families that it was built for: a call takes all their sizes.
    output : str
        The model's tensor that a call computes.
    residual : str or None
        The model's tensor that a call takes as `residual`; None if it takes none.
    """

    def __init__(self, registry: Kernels, entries: Sequence[tuple[Bundle, NodeEntry]]) -> None:
        first = entries[0][1]
        self.name, self.model = first.name, first.model
        self.output, self.residual = first.output, first.residual
        self._registry = registry
        self._entries: list[tuple[Bundle, NodeEntry, Problem]] = []
        self._free: list[tuple[Bundle, NodeEntry, ProblemFamily]] = []
        for bundle, entry in entries:
            problem = entry.problem
            if isinstance(problem, Problem):
                self._entries.append((bundle, entry, problem))
            else:
                self._free.append((bundle, entry, problem))
        self.problems = tuple(problem for *_, problem in self._entries)
        self.families = tuple(family for *_, family in self._free)
        self._bound: dict[tuple[Any, ...], Callable[..., Any]] = {}
        self._mapped: dict[tuple[Path, Blob], np.ndarray] = {}
        self._packed: dict[tuple[str, str], PackedFilter] = {}

    def __call__(self, data: Any, out: Any = None, residual: Any = None) -> Any:
        """Compute the convolution of `data`, and the operations after it up to the tensor `output`.

        Parameters
        ----------
        data, out, residual
            As for :class:`tvmconv.Kernel`; `residual` where the node has one.

        Raises
        ------
        InputError
            If the node was not built for data of this shape and type, or `residual` is missing or superfluous.
        BundleError
            At the first call, if a file is missing, altered, or cannot be loaded.
        """
        if (residual is None) != (self.residual is None):
            if residual is None:
                raise InputError(
                    f"residual is missing: {self!r} adds the tensor {self.residual!r}; give it as residual="
                )
            raise InputError(f"residual was given, but {self!r} adds no other tensor; call it without")
        key = (type(data), getattr(data, "shape", None), getattr(data, "dtype", None))
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bind(data)
            if len(self._bound) >= _REMEMBERED_SHAPES:
                self._bound.clear()
            self._bound[key] = bound
        return bound(data, out, residual)

    def __getstate__(self) -> dict[str, Any]:
        """Copies in other processes map the files."""
        return {**self.__dict__, "_bound": {}, "_mapped": {}, "_packed": {}}

    def __repr__(self) -> str:
        return f"<tvmconv.Node {self.name} of {self.model}>"

    def _bind(self, data: Any) -> Callable[..., Any]:
        array, dtype = view("data", data)
        problem, entries = self._built_for(array.shape, dtype)
        is_free = any(isinstance(entry.problem, ProblemFamily) for _, entry in entries.values())
        kernel = self._registry.serve(problem, () if is_free else entries)
        if kernel is None and problem.batch in entries:
            raise not_found(self._registry.explain(problem))
        if kernel is None:
            raise self._not_built(
                array.shape, dtype, f"these batches do not add up to {problem.batch}: build it for that"
            )
        kernels = kernel.kernels if isinstance(kernel, SplitKernel) else (kernel,)
        used = [entries[each.problem.batch] for each in kernels]
        bundle, entry = used[0]
        for other, another in used[1:]:
            if another.vectors != entry.vectors or any(
                another.filters[layout] != entry.filters[layout] for layout in another.filters.keys() & entry.filters
            ):
                raise BundleError(
                    f"{self!r} has another filter or bias for {another.signature} than for {entry.signature}; build both"
                    f" of one model, at once: {_again(other, another)}"
                )
        given = {*entry.vectors, *(["residual"] if entry.residual is not None else [])}
        if given != problem.operands.keys() - {"data", "filter"}:
            raise BundleError(
                f"{self!r} has {', '.join(sorted(given)) or 'neither bias nor others'}, which is not what {entry.signature}"
                f" takes; add its filter again with: {_again(bundle, entry)}"
            )
        vectors: dict[str, Any] = {name: self._map(bundle, blob) for name, blob in entry.vectors.items()}
        for name, content in vectors.items():
            bits = content.view(KERNEL_TYPES[problem.operands[name][1]])
            vectors[name] = result(bits, problem.operands[name][1], data)
        filters = [self._filter(*each, part, data) for each, part in zip(used, kernels, strict=True)]
        packed = PackedFilters({each.layout: each for each in filters}) if filters[1:] else filters[0]
        return lambda data, out, residual: kernel(data, packed, out=out, residual=residual, **vectors)

    def _built_for(self, shape: tuple[int, ...], dtype: str) -> tuple[Problem, dict[int, tuple[Bundle, NodeEntry]]]:
        """Return the problem of data of a shape and type, and this node's entries for it by batch."""
        same = [each for each in self._entries if (each[2].data_shape[1:], each[2].dtype) == (shape[1:], dtype)]
        exact = [problem for *_, problem in same if problem.data_shape == shape]
        served = [(_at(family, shape, dtype), bundle, entry) for bundle, entry, family in self._free]
        free = [] if exact else [(each, bundle, entry) for each, bundle, entry in served if each is not None]
        if len(free) == 1:
            ((only, bundle, entry),) = free
            return only, {only.batch: (bundle, entry)}
        if not exact and not free and shape and self._registry.split_batch:
            exact = list(dict.fromkeys(problem.with_(batch=shape[0]) for *_, problem in same))
        if len(exact) != 1:
            several = "it was built for that in several layouts, so call a kernel itself"
            raise self._not_built(shape, dtype, several if exact or free else "build it for that")
        (problem,) = exact
        alike = [each for each in same if each[2].with_(batch=problem.batch) == problem]
        return problem, {each.batch: (bundle, entry) for bundle, entry, each in alike}

    def _not_built(self, shape: tuple[int, ...], dtype: str, advice: str) -> InputError:
        built = [f"{list(p.data_shape)} {p.data_format} {p.dtype}" for p in self.problems] + [
            *map(format_family, self.families)
        ]
        return InputError(f"data has shape {list(shape)} and type {dtype}; {self!r} has {', '.join(built)}: {advice}")

    def _filter(self, bundle: Bundle, entry: NodeEntry, kernel: Kernel, data: Any) -> PackedFilter:
        """Return its filter in a kernel's layout: mapped, or packed now if it was built for another target."""
        key = (entry.signature, kernel.filter_layout)
        if key not in self._packed:
            self._packed[key] = self._take_filter(bundle, entry, kernel, data)
        return self._packed[key]

    def _take_filter(self, bundle: Bundle, entry: NodeEntry, kernel: Kernel, data: Any) -> PackedFilter:
        layout = kernel.filter_layout
        if layout in entry.filters:
            return kernel.packed_from(self._map(bundle, entry.filters[layout]))
        plain = entry.filters.get(plain_layout(kernel.problem))
        if plain is None:
            raise BundleError(
                f"the filter of {entry.name!r} was packed for another kernel than {kernel!r}; add it again with: "
                f"{_again(bundle, entry)}"
            )
        bits = self._map(bundle, plain).view(KERNEL_TYPES[kernel.problem.dtype]).reshape(kernel.problem.filter_shape)
        return kernel.pack(result(bits, kernel.problem.dtype, data)).of(layout)

    def _map(self, bundle: Bundle, blob: Blob) -> np.ndarray:
        """Return the bytes of a file, mapped once."""
        key = (bundle.path, blob)
        if key not in self._mapped:
            self._mapped[key] = _map_file(bundle, blob)
        return self._mapped[key]


def _at(family: ProblemFamily, shape: tuple[int, ...], dtype: str) -> Problem | None:
    """Return a family's problem for data of a shape and type; None if it has none."""
    if len(shape) < 2:
        return None
    batch, *spatial, channels = shape if family.data_format == "NXC" else (shape[0], *shape[2:], shape[1])
    if (len(spatial), channels, dtype) != (family.rank, family.in_channels, family.dtype):
        return None
    try:
        problem = family.problem(batch, spatial)
    except InvalidProblemError:
        return None
    return None if family.obstacle(problem) else problem


def _again(bundle: Bundle, entry: NodeEntry) -> str:
    return f"tvmconv build {entry.model} --with-filters -o {bundle.path}"


def _map_file(bundle: Bundle, blob: Blob) -> np.ndarray:
    """Return the bytes of a file, mapped into memory, after checking length and sha256."""
    path = bundle.path / blob.file
    try:
        if not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(bundle.path)) or not path.is_file():
            raise BundleError(f"{path} is missing, or not part of the bundle; build the bundle again")
        with path.open("rb") as file:
            # Copy on write: kernels take writable arrays, and processes share the pages, which nobody writes.
            length = os.fstat(file.fileno()).st_size
            content = mmap.mmap(file.fileno(), length, access=mmap.ACCESS_COPY) if length else bytearray()
    except OSError as error:
        raise BundleError(f"cannot read {path}: {error.strerror}; build the bundle again") from error
    if len(content) != blob.bytes or hashlib.sha256(content).hexdigest() != blob.sha256:
        raise BundleError(f"{path} does not match the build: the file was altered or damaged; build the bundle again")
    array = np.frombuffer(content, np.uint8)
    assert not array.size or array.ctypes.data % LINE_BYTES == 0  # a map begins at a page
    return array


def find_node(registry: Kernels, name: str, model: str | None) -> Node:
    """Return the node `name` of a registry's bundles; arguments and errors are those of `Registry.node`."""
    everything = [(bundle, node) for bundle in registry.bundles for node in bundle.nodes]
    entries: dict[str, tuple[Bundle, NodeEntry]] = {}
    models = set()
    for bundle, node in everything:
        if node.name == name and model in (None, node.model):
            models.add(node.model)
            entries.setdefault(node.signature, (bundle, node))  # the first of several bundles
    if len(models) > 1:
        raise KernelNotFoundError(
            f"several models have a node {name!r}: give model=, one of {', '.join(sorted(models))}"
        )
    outputs = sorted({(entry.output, entry.residual or "nothing") for _, entry in entries.values()})
    if len(outputs) > 1:
        raise KernelNotFoundError(
            f"the node {name!r} computes the tensor {' or '.join(f'{o} (adding {r})' for o, r in outputs)}: what follows"
            " it was fused for some of its shapes; build it for all of them again, or with --no-fuse"
        )
    if entries:
        return Node(registry, list(entries.values()))
    names = sorted({node.name for _, node in everything})
    close = get_close_matches(name, names, n=1)
    if not names:
        hint = "no bundle has any; add them with: tvmconv build MODEL --with-filters -o BUNDLE"
    else:
        hint = f"did you mean {close[0]!r}?" if close else f"the first of {len(names)} is {names[0]!r}"
    raise KernelNotFoundError(f"no node {name!r}{'' if model is None else f' of {model}'}: {hint}")
