"""`compile`: a whole PyTorch model as one library, read by torch.export; `CompiledModel` calls it with tensors.

The library has kernels, the functions between them, weights and a plan (`tvmconv.network.compile`); calling it needs neither
the compiler nor the model.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..checks import as_path
from ..errors import BundleError, InputError, check_extra
from ..runtime.networks.extents import FreeExtents
from ..runtime.networks.network import Network
from ..runtime.networks.tensors import Tensor, fits
from ..support.progress import Progress
from .calling import TYPES, NetworkCall
from .examples import as_example, cast, check_model, print_progress
from .exporting import as_module, export
from .flat import Flat, Structure, describe_form, flatten_arguments, inverse, is_same
from .free_axes import free_axes
from .rewritten import copied_model
from .store import temporary


def compile(
    model: nn.Module,
    example_inputs: Any,
    path: str | os.PathLike[str] | None = None,
    target: str = "host",
    dtype: Any = None,
    *,
    math: str = "default",
    memory: str = "default",
    dynamic_shapes: Any = None,
    named_sizes: Sequence[Any] = (),
    progress: Progress | None = print_progress,
) -> CompiledModel:
    """Compile a whole model to one library, for inputs like the examples; return a module that calls it.

    ``torch.export`` reads the model (``strict=False``), so its code's decisions by shapes are those for the examples, or, with
    `dynamic_shapes`, those for all allowed shapes.

    Parameters
    ----------
    model
        A model in eval mode, which is not changed.
    example_inputs
        A tensor, a tuple of positional arguments, or a dict of named ones.
    path
        Path of the library, for :func:`tvmconv.torch.load`. None: in a temporary folder that is removed with the process.
    target
        A CPU, as for :func:`tvmconv.build`.
    dtype
        ``torch.bfloat16`` or ``torch.float16``: the model computes in this type. None: in its own.
    math
        As for :func:`tvmconv.build`.
    memory
        ``"small"``: no transforms, as with ``math="strict"``, and no joined filters that are larger than the originals.
    dynamic_shapes
        As for ``torch.export.export``, for axes with free extents: ``{"x": {2: Dim("h", min=32, max=4096)}}``. None: all are fixed.
    named_sizes
        Further examples whose sizes get their own kernels in the library, in addition to those of `dynamic_shapes`.
    progress
        Called as ``progress(done, total, what)`` while kernels are built.

    Raises
    ------
    InputError
        If the model is no module, or in training mode, or cannot compute in `dtype`, or `dynamic_shapes` or `named_sizes` do not fit the arguments.
    SourceError
        If torch.export cannot read the model, or it changes its own buffers, or an operator is not supported; it names the operator.
    MissingExtraError
        If the compiler is not installed.
    """
    check_extra("compile", "tvm")
    from ..network.compile import build
    from ..network.read.torch.reader import read_torch

    model = as_module(model)
    check_model(model, dtype, "compile")
    if named_sizes and dynamic_shapes is None:
        raise InputError("named_sizes need dynamic_shapes; give them, or compile each size")
    (args, kwargs), *named = map(as_example, (example_inputs, *named_sizes))
    if dtype is not None:
        model = copied_model(model).to(dtype)
        (args, kwargs), *named = pytree.tree_map_only(
            torch.Tensor, lambda each: cast(each, dtype), [(args, kwargs), *named]
        )
    free, flat = free_axes(model, args, kwargs, dynamic_shapes), Flat(model, args, kwargs)
    program = export(flat, free)
    names = None if free is None else free.names(program)
    path = temporary() / "model.so" if path is None else as_path("path", path)
    facts = flat.structure().facts()
    flats = [Flat(model, *each) for each in named]
    sizes = [read_torch(export(each)) for each in flats]
    if any(each.structure().facts() != facts for each in flats):
        raise InputError("an example of named_sizes has another structure, or order in memory, than example_inputs")
    options: dict[str, Any] = {"math": math, "progress": progress, "memory": memory}
    build(read_torch(program, names), path, target, facts, sizes, **options)
    return CompiledModel(path)


def load(path: str | os.PathLike[str]) -> CompiledModel:
    """Return the module that :func:`compile` wrote; errors are those of :class:`tvmconv.Network`."""
    return CompiledModel(path)


class CompiledModel(nn.Module):  # type: ignore[misc]
    """Compiled model, called like the model in the example; its threads are PyTorch's.

    Attributes
    ----------
    network
        The library.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        facts = Network(path).description.get("caller", {})
        if "in_spec" not in facts:
            raise BundleError(f"{path} was not compiled by tvmconv.torch.compile; call it by tvmconv.load_network")
        self._structure = Structure.read(facts)
        self._call = NetworkCall(path, self._structure.in_orders, self._structure.out_orders)
        self.network = self._call.network
        orders = enumerate(zip(self.network.inputs, self._structure.in_orders, strict=True))
        self._inputs = [
            Tensor(f"input {number}", tuple(each.shape[at] for at in inverse(order)), each.dtype)
            for number, (each, order) in orders
        ]
        self._extents = FreeExtents(self.network.description, self._inputs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the model's answer.

        Raises
        ------
        InputError
            If arguments differ from the example's in shapes, types or structure, are on another device, or require gradients.
        """
        leaves, spec = flatten_arguments(args, kwargs)
        if spec != self._structure.in_spec:
            raise InputError(
                f"arguments are {describe_form(spec)}; the model was compiled for {describe_form(self._structure.in_spec)}"
            )
        tensors: list[Any] = []
        for leaf, constant in zip(leaves, self._structure.given, strict=True):
            if constant is None:
                tensors.append(self._checked(leaf, len(tensors)))
            elif not is_same(leaf, constant[0]):
                raise InputError(f"an argument is {leaf!r}; the model was compiled for {constant[0]!r}")
        if self._extents.extents:
            self._extents.of([each.shape for each in tensors])  # an error names the wrong one, by the model's own axes
        return self._structure.answer(self._call(*tensors), tensors)

    def _checked(self, leaf: Any, number: int) -> Any:
        wanted, dtype = self._inputs[number], TYPES[self._inputs[number].dtype]
        if not isinstance(leaf, torch.Tensor) or not fits(wanted, leaf.shape) or leaf.dtype != dtype:
            shape = "x".join(map(str, leaf.shape)) + f" {leaf.dtype}" if isinstance(leaf, torch.Tensor) else repr(leaf)
            raise InputError(
                f"input {number} is {shape}; the model was compiled for {'x'.join(map(str, wanted.shape))} {dtype}: compile it for"
                " this, too"
            )
        if leaf.device.type != "cpu" or leaf.layout != torch.strided:
            raise InputError(
                f"input {number} is on {leaf.device}, {leaf.layout}; the model was compiled for CPUs, torch.strided"
            )
        if torch.is_grad_enabled() and leaf.requires_grad:
            raise InputError(
                f"input {number} needs a gradient, which compiled models do not compute; call it under torch.no_grad()"
            )
        return leaf.detach()
