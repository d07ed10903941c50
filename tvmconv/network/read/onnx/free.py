"""Free extents of ONNX models: named dimensions, and operators that the frontend would misread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from tvm import relax, sym, tirx
from tvm.ir import Range, is_prim_expr

from ....checks import LARGEST
from ....errors import SourceError
from ....family import Extent
from ....frontends.onnx.graph import attributes_of
from ....frontends.shapes import Dims, Input
from ....lowering.common.rewrites import substitute
from ...ir.constants import constant
from ...ir.free import dims_of, equal, is_free, number_of, product, simplify
from ..builder import as_tensor, from_start, take_first_of_sort, where_within
from .expand_functions import types_of
from .sizes import quotient_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Free = Mapping[str, Sequence[Extent]]
# Operators whose conversion depends on the shapes of their data.
_FIXED = ("Upsample", "RoiAlign", "If", "Loop", "Scan")


def free_dims(inputs: Sequence[Input], given: Free, source: str) -> dict[str, tuple[Extent, ...]]:
    """Return the extents of inputs that have free ones, each of these with its name, the model's, or ``input[axis]``.

    Raises
    ------
    SourceError
        If the model has no such input, fixes an extent that is free, or two of one name differ.
    """
    by_name = {each.name: each for each in inputs}
    found, known = dict[str, tuple[Extent, ...]](), dict[str, Extent]()
    for name, extents in given.items():
        own = inputs[0].name if name == "" and len(inputs) == 1 else name
        if own not in by_name:
            listed = ", ".join(map(str, inputs))
            raise SourceError(f"{source} has no input {name!r}; write --shape NAME=1x3x?x?: {listed}")
        known_dims = by_name[own].dims
        dims: Dims = known_dims if known_dims is not None else ("",) * len(extents)
        if len(dims) != len(extents):
            raise SourceError(
                f"{source}: the shape of {own} has {len(extents)} extents; the model's input is {by_name[own]}"
            )
        made = []
        for axis, (dim, extent) in enumerate(zip(dims, extents, strict=True)):
            if isinstance(dim, int) and (extent.is_free or extent.low != dim):
                raise SourceError(
                    f"{source}: extent {axis} of {own} was given as {extent}, and the model fixes {dim}; export it with that axis dynamic"
                )
            if extent.is_free:
                label = extent.name or (dim if isinstance(dim, str) else "") or f"{own}[{axis}]"
                extent = Extent(extent.low, extent.high, extent.multiple, label)
                if known.setdefault(label, extent) != extent:
                    raise SourceError(
                        f"{source}: {label} is {known[label]} and {extent}; extents with one name must be equal: give it once"
                    )
            made.append(extent)
        found[own] = tuple(made)
    return found


def check_named(shapes: Mapping[str, Sequence[int]], free: Free, source: str) -> None:
    """Raise SourceError if shapes do not match the free extents of inputs."""
    known: dict[str, int] = {}
    for name, extents in free.items():
        shape = shapes.get(name, shapes.get("", ()))
        given = f"{source}: {name} is {'x'.join(map(str, shape)) or 'not given'} beside {'x'.join(map(str, extents))}"
        if len(shape) != len(extents):
            raise SourceError(f"{given}; give its shape, with as many extents")
        for axis, (extent, size) in enumerate(zip(extents, shape, strict=True)):
            if reason := extent.obstacle(size):
                raise SourceError(f"{given}: extent {axis} {reason}")
            if extent.name and known.setdefault(extent.name, size) != size:
                raise SourceError(f"{given}: {extent.name} is {known[extent.name]} and {size}, and must be one extent")


def symbolic(free: Mapping[str, Sequence[Extent]]) -> tuple[dict[str, list[Any]], list[Extent]]:
    """Return the shapes of inputs with symbols, or multiples of them, for free extents, and the free extents."""
    symbols = {
        each.name: (tirx.Var(each.name, "int64"), each) for extents in free.values() for each in extents if each.is_free
    }
    shapes = {
        name: [
            (symbols[each.name][0] * each.multiple if each.multiple > 1 else symbols[each.name][0])
            if each.is_free
            else each.low
            for each in extents
        ]
        for name, extents in free.items()
    }
    return shapes, [extent for _, extent in symbols.values()]


def check_nodes(model: ModelProto, source: str) -> None:
    """Raise SourceError for a node of free extents that TVM's frontend (0.27) would misread."""
    types = types_of(model)
    fixed = {
        name: all(axis.HasField("dim_value") for axis in each.tensor_type.shape.dim)
        and each.tensor_type.HasField("shape")
        for name, each in types.items()
    }
    for node in model.graph.node:
        if all(fixed.get(name, False) for name in (*node.input, *node.output) if name):
            continue
        if reason := _obstacle(node, attributes_of(node), model):
            raise SourceError(
                f"{source}: the {node.op_type} node {node.name or node.output[0]!r} {reason}, which networks with free extents do not support;"
                " give its extents as numbers (--shape NAME=1x3x224x224), or cut the network before it (--cut TENSOR)"
            )


def _obstacle(node: NodeProto, given: Mapping[str, Any], model: ModelProto) -> str | None:
    if node.op_type in _FIXED:
        return "needs the shape of its data"
    same = str(given.get("auto_pad", "NOTSET"))
    if same not in ("NOTSET", "VALID", "") and node.op_type not in ("Conv", "MaxPool", "AveragePool"):
        return f"pads by {same}"
    if node.op_type == "ConvTranspose" and "output_shape" in given:
        return "has an output_shape"
    if node.op_type == "Resize":
        if given.get("mode", "nearest") not in _METHODS:
            return f"has the mode {given['mode']}"
        if len(node.input) < 3 or given.get("antialias") or given.get("axes"):
            return "is of opset 10, antialiased, or has axes"
        if given.get("coordinate_transformation_mode", "half_pixel") not in _COORDINATES:
            return f"has coordinates by {given['coordinate_transformation_mode']}"
        if given.get("keep_aspect_ratio_policy", "stretch") != "stretch":
            return "keeps the aspect ratio"
    return None


_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
_COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")


def resize(emit: Any, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a Resize of free extents, by factors or to a shape; None if all extents are fixed."""
    data, *rest = inputs
    dims, scales, sizes = dims_of(data.ty) or (), *([None, *rest, None, None, None][2:4])
    if all(isinstance(each, int) for each in (*dims, *(numbers_in(sizes) or ()))):
        return None
    factors, given_factors = None if scales is None else constant(scales), [1.0] * len(dims)
    if factors is not None and factors.size:
        given_factors = factors.tolist()
        made = [_times(size, factor) for size, factor in zip(dims, given_factors, strict=True)]
    elif isinstance(sizes, relax.ShapeExpr):
        made = [number_of(size) for size in sizes.values]
    else:
        raise ValueError("a Resize to sizes from a tensor needs fixed extents")
    if len(dims) not in (3, 4) or not all(map(equal, made[:2], dims[:2])):
        raise ValueError("a Resize of other than one or two spatial axes needs fixed extents")
    whole = all(factor == round(factor) for factor in given_factors)
    planes = [1] * (4 - len(dims))
    if planes:
        data = emit(relax.op.expand_dims(data, 2))
    resized = relax.op.image.resize2d(
        data,
        relax.ShapeExpr([*planes, *made[2:]]),
        roi=[0.0] * 4 if whole else [*planes, *given_factors[2:], 0.0, 0.0],
        layout="NCHW",
        method=_METHODS[word_of(given, "mode", "nearest")],
        coordinate_transformation_mode=word_of(given, "coordinate_transformation_mode", "half_pixel"),
        rounding_method=word_of(given, "nearest_mode", "round_prefer_floor"),
        cubic_alpha=given.get("cubic_coeff_a", -0.75),
        cubic_exclude=given.get("exclude_outside", 0),
    )
    return relax.op.squeeze(emit(resized), [2]) if planes else resized


def _times(size: Any, factor: float) -> Any:
    """Return an extent times a factor, rounded down.

    Raises
    ------
    ValueError
        If the extent is free, and the factor is no simple fraction, so that rounding would matter.
    """
    if isinstance(size, int):
        return int(size * factor)
    exact = quotient_of(factor)
    if exact is None:
        raise ValueError(f"a Resize by {factor} needs fixed extents: its size is rounded")
    return tirx.floordiv(size * exact.numerator, exact.denominator)


def take_slices(emit: Any, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a Slice of free extents, which are at least 1, unknown to the frontend; None for others."""
    data, *rest = inputs
    dims = dims_of(data.ty)
    starts, ends, axes, steps = (numbers_in(each) for each in [*rest, None, None, None, None][:4])
    if dims is None or starts is None or ends is None or not is_free(data.ty):
        return None
    axes = [axis % len(dims) for axis in axes or range(len(starts))]
    steps = steps or [1] * len(axes)
    if not all(isinstance(step, int) for step in steps):
        return None
    for number, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        if step < 0:  # a forward slice of the reversed axis
            data, steps[number] = emit(relax.op.flip(data, axis)), -step
            for sides in (starts, ends):
                last = -1 if isinstance(sides[number], int) else dims[axis] - 1
                sides[number] = last - sides[number]
    begins, ends = ([_side(each, dims[axis]) for axis, each in zip(axes, side, strict=True)] for side in (starts, ends))
    return relax.op.strided_slice(data, axes, begins, ends, steps, assume_inbound=True)


def keep_order(
    data: relax.Expr, starts: Sequence[Any], ends: Sequence[Any], axes: Sequence[int], steps: Sequence[Any]
) -> list[int] | None:
    """Return the ends of a slice that takes nothing along a fixed axis, there its starts: TVM refuses ``[5:3]``; None for other slices."""
    dims = dims_of(data.ty)
    sides = [*zip(starts, ends, steps, strict=True)]
    if dims is None or not all(isinstance(each, int) for side in sides for each in side):
        return None
    moved = [
        start if isinstance(dims[axis], int) and not range(*slice(start, end, step).indices(dims[axis])) else end
        for axis, (start, end, step) in zip(axes, sides, strict=True)
    ]
    return None if moved == list(ends) else moved


def gather(builder: relax.BlockBuilder, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a Gather of free extents, whose indices may be negative; None for others."""
    data, indices = inputs[0], constant(inputs[1])
    dims = dims_of(data.ty)
    if dims is None or not is_free(data.ty) or not isinstance(inputs[1].ty, relax.TensorType):
        return None
    axis = int(given.get("axis", 0)) % len(dims)
    if indices is None:
        return relax.op.take(data, from_start(builder, inputs[1], dims[axis]), axis)
    if isinstance(dims[axis], int):
        return relax.op.take(data, relax.const(indices % dims[axis], "int64"), axis)
    if (indices >= 0).all():
        return relax.op.take(data, relax.const(indices, "int64"), axis)
    if indices.size > 1:
        raise ValueError("a Gather of several indices from the end needs fixed extents")
    begin = _side(int(indices.item()), dims[axis])
    one = builder.emit(relax.op.strided_slice(data, [axis], [begin], [begin + 1], assume_inbound=True))
    return relax.op.reshape(one, [*dims[:axis], *indices.shape, *dims[axis + 1 :]])


def gather_elements(builder: relax.BlockBuilder, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a GatherElements of free extents, whose indices may be negative; None for others."""
    data, indices = inputs
    dims = dims_of(data.ty)
    if dims is None or not is_free(data.ty):
        return None
    axis = int(given.get("axis", 0)) % len(dims)
    return relax.op.gather_elements(data, from_start(builder, indices, dims[axis]), axis)


def gather_nd(builder: relax.BlockBuilder, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a GatherND of free extents, whose indices may be negative; None for others."""
    (data, indices), emit = inputs, builder.emit
    dims, places = dims_of(data.ty), dims_of(indices.ty)
    if dims is None or places is None or not (is_free(data.ty) or is_free(indices.ty)):
        return None
    count = places[-1]
    if not isinstance(count, int) or given.get("batch_dims"):
        raise ValueError("with free extents it must have no batch axes, and a fixed number of indexed axes")
    row, found = relax.const(0, str(indices.ty.dtype)), list[Any]()
    for axis, extent in enumerate(dims[:count]):
        part = emit(relax.op.strided_slice(indices, [len(places) - 1], [axis], [axis + 1], assume_inbound=True))
        place = from_start(builder, emit(relax.op.squeeze(part, [-1])), extent)
        found.append(place)
        before = emit(relax.op.multiply(row, as_tensor(builder, extent, str(indices.ty.dtype))))
        row = emit(relax.op.add(before, place))
    rows = emit(relax.op.reshape(data, [product(dims[:count]), *dims[count:]]))
    return relax.op.take(rows, where_within(builder, row, found, dims[:count]), 0)


def take_first(builder: relax.BlockBuilder, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a TopK whose count is an expression of extents; None for others."""
    if len(inputs) < 2 or not isinstance(inputs[1], relax.ShapeExpr):
        return None
    (count,), axis = inputs[1].values, int(given.get("axis", -1))
    return relax.Tuple(list(take_first_of_sort(builder, inputs[0], count, axis, bool(given.get("largest", 1)))))


def split(emit: Any, inputs: Sequence[Any], given: Mapping[str, Any]) -> relax.Expr | None:
    """Return a Split with parts of no elements; None for others, which TVM's frontend reads.

    Raises
    ------
    ValueError
        If the parts are not those of the axis: TVM makes some of negative sizes.
    """
    data, count = inputs[0], given["tvm_custom"]["num_outputs"]
    dims = None if isinstance(data, relax.ShapeExpr) else dims_of(data.ty)
    axis = given.get("axis", 0)
    if dims is None or not isinstance(extent := dims[axis], int):
        return None
    sizes = given.get("split") or (numbers_in(inputs[1]) if len(inputs) > 1 else None)
    part = -(-extent // count)
    sizes = [int(each) for each in sizes or (*[part] * (count - 1), extent - part * (count - 1))]
    if min(sizes) < 0 or sum(sizes) != extent or len(sizes) != count:
        raise ValueError(f"parts of {sizes} elements for {count} outputs; those of axis {axis} have {extent} in all")
    if min(sizes):
        return None
    ends = list(accumulate(sizes))
    return relax.Tuple(
        [emit(relax.op.strided_slice(data, [axis], [end - size], [end])) for size, end in zip(sizes, ends, strict=True)]
    )


def numbers_in(given: Any) -> list[Any] | None:
    """Return the numbers and expressions of a constant, a shape or a number; None if they are unknown, or the input is absent."""
    if isinstance(given, relax.ShapeExpr):
        return [number_of(each) for each in given.values]
    if is_prim_expr(given):
        return [number_of(given)]
    array = None if given is None else constant(given)
    return None if array is None else [int(each) for each in array.reshape(-1)]


def _side(side: Any, extent: Any) -> Any:
    """Return where a slice begins or ends along an axis of at least one element, clamped to the axis."""
    if not isinstance(side, int):
        return side
    size = tirx.Var("size", "int64")
    analyzer = sym.Analyzer()
    analyzer.bind(size, Range(1, LARGEST))
    zero = tirx.const(0, "int64")
    found = tirx.max(size + side, zero) if side < 0 else tirx.min(zero + min(side, LARGEST), size)
    found = substitute(analyzer.simplify(found), {size: zero + extent})
    return simplify(found)


def word_of(given: Mapping[str, Any], name: str, default: str) -> str:
    """Return an attribute of text, or its default."""
    return text_of(given.get(name, default))


def text_of(value: Any) -> str:
    """Return a text, which the frontend hands over as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
