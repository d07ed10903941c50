"""Read every Conv and ConvTranspose of an ONNX model, with shapes inferred by ONNX or observed by running the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx.shape_inference

from ...errors import InvalidProblemError, SourceError
from ...problem import DTYPES as KERNEL_DTYPES
from ...problem import Problem
from ..following import Following, follow
from ..model import Skipped, SourceNode
from ..reader import Reader, Reading
from ..shapes import Bucket, left_free
from .effects import OnnxOperations, constants_of, has_fixed_filter
from .graph import (
    DTYPES,
    OTHER_OP_TYPES,
    TYPE_NAMES,
    Place,
    attributes_of,
    convolutions,
    declared_inputs,
    is_convolution,
    used_names,
    with_inputs,
)
from .load import load
from .observe import Observed, observe, observe_branches
from .rules import node_problem, pads_of
from .tensors import Tensors
from .versions import with_known_versions

if TYPE_CHECKING:
    from onnx import ModelProto


class OnnxReader(Reader):
    """Reads one model.

    Parameters
    ----------
    content
        The bytes of the model, or the model; external weights are not needed.
    source, how
        The model's name for messages, and the options of reading.
    biased
        Whether numbers added to a convolution's output are its bias, even if nothing else is fused.
    """

    def __init__(self, content: bytes | ModelProto, source: str, how: Reading, biased: bool = False) -> None:
        super().__init__(source, how)
        self._model, self._biased = load(content, source) if isinstance(content, bytes) else content, biased
        self._folder = Path(source).parent
        self._inputs = declared_inputs(self._model.graph)
        names = [each.name for each in self._inputs]
        for name in self._given:
            if name not in names:
                raise SourceError(f"{source} has no input {name!r}; its inputs: {', '.join(map(str, self._inputs))}")

    def read(self, bucket: Bucket) -> tuple[list[SourceNode], list[Skipped]]:
        """Return the convolutions at the shapes of a bucket, and the skipped ones."""
        bound = self._bound(self._inputs, bucket)
        model = with_known_versions(with_inputs(self._model, bound), self._source)
        free = left_free(bound)
        cause = ""
        try:
            inferred = _infer(model)
        except SourceError as error:
            if self._shapes == "infer":
                raise SourceError(f"{self._source}: {error}") from error
            inferred, cause = model, str(error)
        places = convolutions(inferred)
        found = self._inferred(inferred, places)
        unknown = any(isinstance(each, _Unknown) for each in found.values())
        if free:
            cause = free
            if self._shapes == "run":
                raise SourceError(f"{self._source}: {cause}")
        if self._shapes == "run" or (self._shapes == "auto" and unknown and not free):
            impossible: dict[int, str] = {}
            try:
                seen = observe(model, self._folder, bound, self._given)
            except SourceError as error:
                seen, impossible = observe_branches(model, self._folder, bound, self._given)
                if self._shapes == "run" and not seen:
                    raise SourceError(f"{self._source}: {error}") from error
                cause = f"{error}; {cause or _why_not_inferred(model)}"
            if seen:
                found.update(self._observed(place, seen.get(place.number), found[place.number]) for place in places)
            for number in impossible.keys() - seen.keys():
                found[number] = f"its part of the If node does not run at these shapes: {impossible[number]}"
        elif unknown and not free:
            cause = "--shapes auto runs the model once to see its shapes"
        skipped = []
        for place in places:
            each = found[place.number]
            if isinstance(each, str):
                why = cause if isinstance(each, _Unknown) else ""
                skipped.append(Skipped(place.name, place.node.op_type, str(each), why))
        return self._nodes(model, places, found), skipped

    def _nodes(
        self, model: ModelProto, places: Sequence[Place], found: Mapping[int, list[Problem] | str]
    ) -> list[SourceNode]:
        """Return the convolutions with problems as nodes, with fused operations after them."""
        tensors: dict[int, Tensors] = {}
        nodes: dict[int, list[SourceNode]] = {}
        # An Add of two convolutions' results belongs to the later one: the other result exists by then.
        for place in reversed(places):
            problems = found[place.number]
            if isinstance(problems, str):
                continue
            graph = id(place.graphs[-1])
            if graph not in tensors:
                tensors[graph] = Tensors(model, place, self._folder)
            nodes[place.number] = [self._node(place, problem, tensors[graph]) for problem in problems]
        return [node for place in places for node in nodes.get(place.number, ())]

    def _inferred(self, model: ModelProto, places: list[Place]) -> dict[int, list[Problem] | str]:
        """Return by the nodes' numbers the problems at inferred shapes, or the reason why there are none."""
        used = frozenset(used_names(model.graph))
        found: dict[int, list[Problem] | str] = {}
        for place in places:
            try:
                problem = self._problem(place, *(_known_shape(place, i) for i in range(3)))
                _check_inferred(place, problem, used)
                found[place.number] = [problem]
            except _UnknownShapeError as error:
                found[place.number] = _Unknown(error)
            except SourceError as error:
                found[place.number] = str(error)
        return found

    def _observed(
        self, place: Place, seen: list[Observed] | None, inferred: list[Problem] | str
    ) -> tuple[int, list[Problem] | str]:
        """Return the number of a convolution and its problems: the observed, else the inferred ones unless shapes are only observed."""
        if seen is None:
            counts = self._shapes == "auto" or not is_convolution(place.node)
            return place.number, inferred if counts and not isinstance(inferred, _Unknown) else _not_run(place)
        found = []
        for data, taps, output in seen:
            try:
                problem = self._problem(place, data, taps, (output[1],))
            except SourceError as error:
                return place.number, str(error)
            if problem.output_shape != output:
                text = f"it computes the shape {list(output)}, but its attributes give {list(problem.output_shape)}"
                return place.number, text
            found.append(problem)
        return place.number, list(dict.fromkeys(found))

    def _problem(
        self, place: Place, data: tuple[int, ...] | None, taps: tuple[int, ...] | None, bias: tuple[int, ...] | None
    ) -> Problem:
        node = place.node
        if not is_convolution(node):
            raise SourceError(OTHER_OP_TYPES[node.op_type])
        if data is None or taps is None or not node.output:
            raise SourceError("it lacks its inputs or its output")
        attributes = attributes_of(node)
        bias = bias if len(node.input) > 2 and node.input[2] else None
        try:
            return node_problem(node.op_type, attributes, data, taps, bias, self._type(place))
        except InvalidProblemError as error:
            raise SourceError(str(error)) from error

    def _type(self, place: Place) -> str:
        types = {place.scope[name].elem_type for name in place.node.input[:3] if name in place.scope}
        types.discard(onnx.TensorProto.UNDEFINED)
        if types <= DTYPES.keys() and len(types) == 1:
            return DTYPES[types.pop()]
        if self._dtype is not None:
            return self._dtype
        names = " and ".join(sorted(TYPE_NAMES.get(t, f"type {t}") for t in types)) or "an unknown type"
        raise SourceError(
            f"it computes in {names}; kernels are built for one of float, float16 and bfloat16: "
            f"choose one with --dtype ({', '.join(KERNEL_DTYPES)})"
        )

    def _node(self, place: Place, problem: Problem, tensors: Tensors) -> SourceNode:
        chain = Following(place.node.output[0])
        if (fuses := self._fuse or self._with_constants) or self._biased:
            try:
                chain = follow(
                    OnnxOperations(place, problem, tensors),
                    chain.last,
                    problem.out_channels,
                    tensors.taken,
                    folds=fuses and has_fixed_filter(place, tensors),
                    fuse=self._fuse,
                    biased=self._biased,
                )
            except SourceError as error:
                raise SourceError(f"{self._source}: what follows {place}: {error}; --no-fuse ignores it") from error
        constants = constants_of(place, chain, problem, tensors) if self._with_constants else None
        following = (node for node in map(tensors.maker, chain.nodes) if node is not None)
        serves = (place.name, *(node.name or node.output[0] for node in following))
        pads = pads_of(place.node.op_type, attributes_of(place.node), len(problem.kernel))
        return SourceNode(place.name, chain.problem(problem), constants, serves, chain.residual, pads)


class _UnknownShapeError(SourceError):
    """The inference found no shape for a convolution."""


class _Unknown(str):
    """Reason why a convolution's shape is not known; a run may show it."""

    def __new__(cls, reason: object) -> _Unknown:
        return super().__new__(cls, str(reason))


def _known_shape(place: Place, index: int) -> tuple[int, ...] | None:
    """Return the shape of a node's data, filter or bias (0, 1, 2); None if it has no such input."""
    if not is_convolution(place.node) or len(place.node.input) <= index or not place.node.input[index]:
        return None
    role, name = ("data", "filter", "bias")[index], place.node.input[index]
    value = place.scope.get(name)
    if value is None or value.shape is None:
        raise _UnknownShapeError(f"ONNX's shape inference finds no shape for its {role} {name!r}")
    known = [dim for dim in value.shape if isinstance(dim, int)]
    if len(known) == len(value.shape):
        return tuple(known)
    shown = ", ".join(str(dim) if isinstance(dim, int) else "?" for dim in value.shape)
    raise _UnknownShapeError(f"its {role} {name!r} has the unknown extents [{shown}]")


def _why_not_inferred(model: ModelProto) -> str:
    """Return the error of ONNX's shape inference in strict mode; the lenient mode passes over it."""
    try:
        _infer(model, strict=True)
    except SourceError as error:
        return str(error)
    return "declare the shape in the model (an entry of graph.value_info)"


def _not_run(place: Place) -> str:
    if place.inside:
        return f"its part of the {place.inside[-1].op_type} node did not run; give inputs with which it does (--inputs)"
    return "it did not run"


def _check_inferred(place: Place, problem: Problem, used: frozenset[str]) -> None:
    """Refuse a wrongly inferred output that nodes read: shapes after it would be wrong, too."""
    name = place.node.output[0]
    output = place.scope.get(name)
    inferred = output.shape if output else None
    if inferred and len(inferred) == len(problem.output_shape) and name in used:
        for given, right in zip(inferred, problem.output_shape, strict=True):
            if isinstance(given, int) and given != right:
                raise _UnknownShapeError(
                    f"ONNX infers the output shape {list(inferred)}, but its attributes give "
                    f"{list(problem.output_shape)}, and other nodes use it; write explicit pads instead of auto_pad"
                )


def _infer(model: ModelProto, strict: bool = False) -> ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(model, strict_mode=strict, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError) as error:
        raise SourceError(f"ONNX's shape inference fails: {error}") from error
