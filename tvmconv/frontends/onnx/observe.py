"""The shapes of an ONNX model's convolutions, seen while it runs once.

The model is changed so that the shapes of each convolution's data, filter and output are outputs of it. Those inside
a node's graphs become outputs of that node: of both branches of an If, of each turn of a Loop or Scan. onnxruntime runs
it where it is installed, else ONNX's reference evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from onnx import TensorProto, helper

from ...errors import SourceError, first_line
from ..shapes import Dims, Shape
from .graph import TYPE_NAMES, Place, convolutions, inputs_of, is_convolution, subgraphs, value_of
from .session import open_session
from .weights import load_weights

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

    Arrays = Mapping[str, np.ndarray]

_PREFIX = "tvmconv.shapes."
_PADDED_RANK = 8  # numbers kept of each shape; no convolution has more than five dimensions
_NOTHING = -1  # fills it up


class Observed(NamedTuple):
    """The shapes of a convolution that ran."""

    data: Shape
    filter: Shape
    output: Shape


def observe(
    model: ModelProto, folder: Path, bound: Mapping[str, Dims | None], given: Arrays
) -> dict[int, list[Observed]]:
    """Run a model once and return the shapes of the convolutions that ran, by their numbers.

    Parameters
    ----------
    folder
        Folder of its external weights.
    bound
        The dimensions of its inputs.
    given
        Inputs by name. The others are random: standard normal numbers, ones for integers, true.

    Raises
    ------
    SourceError
        If an input's shape is not known, or the model does not run.
    """
    feeds = {value.name: _fill_input(value, bound[value.name], given) for value in inputs_of(model.graph)}
    watched: ModelProto = type(model)()
    watched.CopyFrom(model)
    names = _watch(watched, convolutions(watched))
    try:
        load_weights(watched, folder)
        results = _run(watched, names, feeds)
    except Exception as error:
        raise SourceError(f"Running the model once fails: {first_line(error)}") from error
    return {number: found for number, rows in zip(_numbers(names), results, strict=True) if (found := _decode(rows))}


def observe_branches(
    model: ModelProto, folder: Path, bound: Mapping[str, Dims | None], given: Arrays
) -> tuple[dict[int, list[Observed]], dict[int, str]]:
    """Return the result of :func:`observe` with forced branches of Ifs, and why convolutions in others cannot run.

    One branch may be impossible at the given shapes, and random inputs may select it: both are tried, of all Ifs with
    convolutions together, then of each.
    """
    places = convolutions(model)
    found: dict[int, list[Observed]] = {}
    why: dict[int, str] = {}
    for chosen in _choices(places):
        try:
            seen = observe(_force(model, chosen), folder, bound, given)
        except SourceError as error:
            seen = {}
            for place in places:
                if any(each.output[0] == name for each in place.inside for name, _ in chosen):
                    why.setdefault(place.number, str(error))
        found |= {number: each for number, each in seen.items() if number not in found}
    return found, why


def _choices(places: Sequence[Place]) -> list[list[tuple[str, bool]]]:
    """Return the branches to force of Ifs with convolutions, by their first outputs."""
    names = list(dict.fromkeys(each.output[0] for place in places for each in place.inside if each.op_type == "If"))
    together = [[(name, branch) for name in names] for branch in (True, False)] if names else []
    return together + ([[(name, branch)] for name in names for branch in (True, False)] if len(names) > 1 else [])


def _force(model: ModelProto, chosen: Sequence[tuple[str, bool]]) -> ModelProto:
    """Return a model in which the Ifs of these outputs take these branches."""
    copy: ModelProto = type(model)()
    copy.CopyFrom(model)
    branches = dict(chosen)
    for branch in set(branches.values()):
        copy.graph.initializer.append(helper.make_tensor(f"{_PREFIX}{branch}", TensorProto.BOOL, [], [branch]))

    def force(graph: GraphProto) -> None:
        for node in graph.node:
            if node.op_type == "If" and node.output[0] in branches:
                node.input[0] = f"{_PREFIX}{branches[node.output[0]]}"
            for inner in subgraphs(node):
                force(inner)

    force(copy.graph)
    return copy


def _numbers(names: Sequence[str]) -> list[int]:
    return [int(name.removeprefix(_PREFIX)) for name in names]


def _fill_input(value: Any, dims: Dims | None, given: Arrays) -> np.ndarray:
    if not value.type.HasField("tensor_type"):
        raise SourceError(f"The model cannot be run once: its input {value.name!r} is not a tensor")
    number = value_of(value.type).elem_type
    if number == TensorProto.STRING:
        raise SourceError(f"The model cannot be run once: its input {value.name!r} is text")
    dtype = helper.tensor_dtype_to_np_dtype(number)
    shape = tuple(dim for dim in dims or () if isinstance(dim, int))
    if dims is None or len(shape) != len(dims):
        raise SourceError(
            f"The model cannot be run once, because the shape of its input {value.name!r} is unknown; give it"
        )
    if value.name in given:
        array = given[value.name]
        if array.ndim == 0 and np.issubdtype(dtype, np.integer):
            fits = np.can_cast(np.min_scalar_type(array), dtype)
        else:
            fits = np.can_cast(array.dtype, dtype, "same_kind")
        if not fits:
            raise SourceError(f"The input {value.name!r} is {TYPE_NAMES[number]}, but {array.dtype} was given")
        return np.full(shape, array, dtype) if array.ndim == 0 else array.astype(dtype)
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        return np.ones(shape, dtype)
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def _run(model: ModelProto, names: list[str], feeds: Arrays) -> list[np.ndarray]:
    """Return the model's outputs `names`."""
    try:
        session = open_session(model, "ORT_DISABLE_ALL")
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        return list(ReferenceEvaluator(model).run(names, dict(feeds)))
    return list(session.run(names, dict(feeds)))


def _watch(model: ModelProto, places: Sequence[Place]) -> list[str]:
    """Make the shapes of convolutions outputs of a model; return the outputs' names."""
    opset = next(each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
    names = []
    for place in places:
        if not is_convolution(place.node) or len(place.node.input) < 2 or not place.node.output:
            continue
        name = f"{_PREFIX}{place.number}"
        tensors = (place.node.input[0], place.node.input[1], place.node.output[0])
        place.graphs[-1].node.extend(_shape_nodes(name, tensors, opset))
        place.graphs[-1].output.append(_declare(name))
        for graph, node in zip(reversed(place.graphs[:-1]), reversed(place.inside), strict=True):
            _return_from(node, name)
            graph.output.append(_declare(name))
        names.append(name)
    return names


def _declare(name: str) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.INT64, None)


def _shape_nodes(name: str, tensors: Sequence[str], opset: int) -> list[NodeProto]:
    """Return nodes that compute the concatenated shapes of `tensors`, each padded to the same length."""
    fill = helper.make_tensor(f"{name}.fill", TensorProto.INT64, [_PADDED_RANK], [_NOTHING] * _PADDED_RANK)
    nodes = [helper.make_node("Constant", [], [f"{name}.fill"], value=fill)]
    parts = [f"{name}.{i}" for i in range(len(tensors))]
    bounds = ("starts", 0), ("ends", _PADDED_RANK)
    if opset >= 10:
        for key, number in bounds:
            made = helper.make_tensor(f"{name}.{key}", TensorProto.INT64, [1], [number])
            nodes.append(helper.make_node("Constant", [], [f"{name}.{key}"], value=made))
    for part, tensor in zip(parts, tensors, strict=True):
        nodes.append(helper.make_node("Shape", [tensor], [f"{part}.shape"]))
        nodes.append(helper.make_node("Concat", [f"{part}.shape", f"{name}.fill"], [f"{part}.long"], axis=0))
        if opset >= 10:
            nodes.append(helper.make_node("Slice", [f"{part}.long", f"{name}.starts", f"{name}.ends"], [part]))
        else:
            nodes.append(helper.make_node("Slice", [f"{part}.long"], [part], **{key: [n] for key, n in bounds}))
    nodes.append(helper.make_node("Concat", parts, [name], axis=0))
    return nodes


def _return_from(node: NodeProto, name: str) -> None:
    """Make the output `name` of one of a node's graphs an output of the node."""
    if name in node.output:
        return
    node.output.append(name)
    if node.op_type == "If":
        for attribute in node.attribute:
            if attribute.HasField("g") and name not in (output.name for output in attribute.g.output):
                _add_empty_output(attribute.g, name)
    for attribute in node.attribute:  # of a Scan, one for each output
        if attribute.name in ("scan_output_directions", "scan_output_axes"):
            attribute.ints.append(0)


def _add_empty_output(branch: GraphProto, name: str) -> None:
    """Add an empty output to the branch of an If without the convolution of the other branch."""
    size = 3 * _PADDED_RANK
    nothing = helper.make_tensor(name, TensorProto.INT64, [size], [_NOTHING] * size)
    branch.node.append(helper.make_node("Constant", [], [name], value=nothing))
    branch.output.append(_declare(name))


def _decode(rows: np.ndarray) -> list[Observed]:
    """Return the distinct observed shapes, in order; a Loop has one row for each iteration."""
    shapes = []
    for row in np.reshape(rows, (-1, 3, _PADDED_RANK)):
        found = Observed(*(tuple(int(n) for n in part if n != _NOTHING) for part in row))
        if found.data:
            shapes.append(found)
    return list(dict.fromkeys(shapes))
