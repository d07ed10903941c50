"""OpenVINO IR to an ONNX model: layer by layer, by one table of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from ...errors import LackingOperatorsError, SourceError
from .elementwise import ELEMENTWISE
from .indexing import INDEXING
from .layer import IrLayer
from .moves import MOVES
from .normalization import NORMALIZATIONS
from .recurrent import RECURRENT
from .resize import RESIZES
from .rules import OP_TYPES
from .sums import SUMS
from .translation import Translation
from .windows import WINDOWS

if TYPE_CHECKING:
    from onnx import ModelProto

# Layers named in an error for each operator.
_MOST_NAMED = 3
_ENDS = ("Parameter", "Result")

Write = Callable[[IrLayer], "str | list[str]"]
OPERATORS: Mapping[str, Write] = {
    **ELEMENTWISE,
    **INDEXING,
    **MOVES,
    **NORMALIZATIONS,
    **RECURRENT,
    **RESIZES,
    **SUMS,
    **WINDOWS,
}


def translate(
    model: Any,
    source: str,
    dims: Sequence[Sequence[int | str] | None],
    wanted: Sequence[str] = (),
    whole: bool = True,
) -> ModelProto:
    """Return an IR as an ONNX model.

    Parameters
    ----------
    model
        OpenVINO's model, with the shapes that it is to have.
    source
        Its file, for errors.
    dims
        The extents of its inputs; free ones are names.
    wanted
        Names to prefer for tensors with several names.
    whole
        Whether all layers must be translated; else those that cannot stay OpenVINO's operators.

    Raises
    ------
    SourceError
        If networks lack an operation, or a variant of one; it names the layers.
    """
    made = Translation(wanted)
    layers = [op for op in model.get_ordered_ops() if not made.fixed.take(op)]
    if not whole:
        _translate_some(made, model, layers, dims)
        return made.model
    _check_operators(layers, source)
    with_layer = functools.partial(_say_layer, source=source)
    for each, extents in zip(model.inputs, dims, strict=True):
        with with_layer(each.get_node()):
            made.add_input(each, extents)
    for op in layers:
        if op.get_type_name() not in _ENDS:
            with with_layer(op):
                _add(made, op)
    for each in model.outputs:
        made.add_output(each)
    return made.model


def _translate_some(
    made: Translation, model: Any, layers: Sequence[Any], dims: Sequence[Sequence[int | str] | None]
) -> None:
    """Write the readable part of a model."""
    for each, extents in zip(model.inputs, dims, strict=True):
        made.add_any_input(each, extents)
    for op in layers:
        if op.get_type_name() in _ENDS:
            continue
        try:
            _add(made, op)
        except (KeyError, ValueError):
            made.leave(op)
    for each in model.outputs:
        with suppress(ValueError):
            made.add_output(each)


def _add(made: Translation, op: Any) -> None:
    layer = IrLayer(op, made, [made.name(each) for each in op.outputs()])
    names = OPERATORS[layer.kind](layer)
    layer.end([names] if isinstance(names, str) else names)
    made.add_nodes(layer.nodes)


@contextmanager
def _say_layer(op: Any, source: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise SourceError(
            f"{source}: the {op.get_type_name()} layer {op.get_friendly_name()!r} {error}; change it, or cut the network before it (--cut TENSOR)"
        ) from error


def _check_operators(layers: Sequence[Any], source: str) -> None:
    """Refuse operations that are not in the table."""
    lacking: dict[str, list[str]] = {}
    for op in layers:
        if op.get_type_name() not in (*OPERATORS, *_ENDS):
            lacking.setdefault(op.get_type_name(), []).append(repr(op.get_friendly_name()))
    if not lacking:
        return
    found = []
    for kind, names in sorted(lacking.items()):
        more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
        found.append(f"{kind} ({', '.join(names[:_MOST_NAMED])}{more})")
    message = f"{source}: networks do not support OpenVINO's {', '.join(found)}; cut the network before (--cut TENSOR)"
    if any(op.get_type_name() in OP_TYPES for op in layers):
        message += f", or build the convolutions alone: tvmconv build {source}"
    raise LackingOperatorsError(message, sorted(lacking))
