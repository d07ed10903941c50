"""`free_axes`: torch.export's ``dynamic_shapes`` for the flat sequence of tensors in a model's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ..errors import InputError
from .flat import flatten_arguments, order_of

_CHECK = torch.ops.aten._assert_scalar.default
# Number of extents among which a model's least is searched: networks have an output for each 32 or 64 pixels.
_SEARCHED = 256


@dataclass(frozen=True)
class FreeAxes:
    """Free axes of the tensors that :class:`tvmconv.torch.flat.Flat` takes.

    Attributes
    ----------
    shapes
        torch.export's dynamic shapes of each tensor, by axis; numbers and absent axes are fixed.
    """

    shapes: Sequence[dict[int, Any]]

    def widen(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return an example's tensors with free extents of 1 doubled, as torch.export would take 1 for a fixed extent."""
        return tuple(
            tensor.repeat([2 if at in ones else 1 for at in range(tensor.ndim)])
            for tensor, ones in zip(tensors, self._ones(tensors), strict=True)
        )

    def allow_one(self, program: ExportedProgram, tensors: Sequence[torch.Tensor]) -> None:
        """Allow extents of 1 where the example has them: torch.export assumes that free extents without a range are not 1."""
        for ones, sizes in zip(self._ones(tensors), _sizes_of_inputs(program), strict=True):
            for size in (sizes[axis] for axis in ones):
                if isinstance(size, torch.SymInt) and size.node.expr.is_symbol:
                    known = program.range_constraints[size.node.expr]
                    program.range_constraints[size.node.expr] = ValueRanges(min(known.lower, 1), known.upper)

    def narrowed(self, program: ExportedProgram, tensors: Sequence[torch.Tensor]) -> FreeAxes | None:
        """Return axes whose least extents pass the run-time checks of a program exported for these axes; None: nothing changes.

        Larger extents may fail: torch.export proves that none does when it reads the model for the returned axes.
        """
        checks = [
            node.args[0].meta["val"].node.expr for node in program.graph.find_nodes(op="call_function", target=_CHECK)
        ]
        names, dims = self.names(program), dict[str, Dim]()
        for symbol, known in program.range_constraints.items():
            own = [each for each in checks if each.free_symbols == {symbol}]
            searched = range(int(known.lower), int(min(known.upper, known.lower + _SEARCHED)))
            low = max(
                (extent + 1 for extent in searched if not all(each.subs(symbol, extent) for each in own)), default=0
            )
            name = names.get(str(symbol))
            if name and 0 < low < known.upper:
                dims[name] = Dim(name, min=low, max=None if known.upper == int_oo else int(known.upper))
        shapes = [
            {axis: dims.get(dim.__name__, dim) if type(dim) is Dim else dim for axis, dim in axes.items()}
            for axes in self.shapes
        ]
        given = (
            (tensor.shape[axis], dim)
            for tensor, axes in zip(tensors, shapes, strict=True)
            for axis, dim in axes.items()
        )
        fits = all(extent >= dim.min for extent, dim in given if dim in dims.values())
        return FreeAxes(shapes) if dims and fits else None

    def _ones(self, tensors: Sequence[torch.Tensor]) -> list[list[int]]:
        """Return the free axes of each of an example's tensors with extents of 1."""
        return [
            [at for at, dim in axes.items() if tensor.shape[at] == 1 and not isinstance(dim, int) and dim != Dim.STATIC]
            for tensor, axes in zip(tensors, self.shapes, strict=True)
        ]

    def names(self, program: ExportedProgram) -> dict[str, str]:
        """Return the names of extents by a program's symbols."""
        found = {}
        for sizes, axes in zip(_sizes_of_inputs(program), self.shapes, strict=True):
            for axis, dim in axes.items():
                size = sizes[axis]
                if isinstance(dim, Dim) and isinstance(size, torch.SymInt):
                    found[str(size.node.expr.as_coeff_Mul()[1])] = str(getattr(dim, "root", dim).__name__)
        return found


def _sizes_of_inputs(program: ExportedProgram) -> list[Sequence[Any]]:
    given = set(program.graph_signature.user_inputs)
    nodes = program.graph.find_nodes(op="placeholder")
    return [node.meta["val"].shape for node in nodes if node.name in given]


def free_axes(model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> FreeAxes | None:
    """Return the axes that are free; None: none is.

    Parameters
    ----------
    dynamic_shapes
        As for torch.export: by the names of arguments, or in their order.

    Raises
    ------
    InputError
        If it does not fit the arguments.
    """
    if hasattr(dynamic_shapes, "dynamic_shapes"):  # torch.export.ShapesCollection and AdditionalInputs
        dynamic_shapes = dynamic_shapes.dynamic_shapes(model, args, kwargs)
    if not dynamic_shapes:
        return None
    # A tensor may occur in several arguments: aliases distinguish them.
    args, kwargs = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs))
    arguments: Any = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    found: dict[int, dict[int, Any]] = {}
    if not isinstance(dynamic_shapes, Mapping):
        arguments = [*arguments.values()]
    _walk(arguments, dynamic_shapes, found, "")
    tensors = [each for each in flatten_arguments(args, kwargs)[0] if isinstance(each, torch.Tensor)]
    shapes = []
    for tensor in tensors:
        given = found.get(id(tensor), {})
        shapes.append({at: given[axis] for at, axis in enumerate(order_of(tensor)) if given.get(axis) is not None})
    return FreeAxes(shapes) if any(shapes) else None


def _walk(value: Any, given: Any, found: dict[int, dict[int, Any]], path: str) -> None:
    """Record the dynamic shapes of each tensor in a value."""
    if given is None:
        return
    if isinstance(value, torch.Tensor):
        axes = given if isinstance(given, Mapping) else dict(enumerate(given))
        if any(not isinstance(axis, int) or not 0 <= axis < value.ndim for axis in axes):
            raise _misfit(path, given, f"a tensor of {value.ndim} axes")
        found[id(value)] = dict(axes)
        return
    if isinstance(value, Mapping) and isinstance(given, Mapping) and value.keys() >= given.keys():
        items = [(value[name], given[name], name) for name in given]
    else:
        children = list(value) if isinstance(value, (list, tuple)) else _list_children(value)
        if not isinstance(given, (list, tuple)) or len(given) != len(children):
            raise _misfit(path, given, f"a {type(value).__name__} of {len(children)}")
        items = [(*each, str(at)) for at, each in enumerate(zip(children, given, strict=True))]
    for child, each, name in items:
        _walk(child, each, found, f"{path}[{name}]")


def _list_children(value: Any) -> list[Any]:
    known = pytree.SUPPORTED_NODES.get(type(value))
    return list(known.flatten_fn(value)[0]) if known is not None else []


def _misfit(path: str, given: Any, value: str) -> InputError:
    return InputError(
        f"dynamic_shapes{path} is {given!r}, and the argument {value}; give what torch.export.export takes"
    )
