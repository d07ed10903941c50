"""Layers of OpenVINO by its operations, for tests that compile them: tables of functions of the inputs of `openvino_models`."""

from __future__ import annotations

from typing import Any

import numpy as np
import openvino
from openvino import opset13, opset16
from openvino.utils.node_factory import NodeFactory
from openvino_models import Make, constant, convolution, ints, of_x, of_y, weights
from openvino_recurrent import RECURRENT

BACK, GROUPS, BACK_GROUPS = "convolution_backprop_data", "group_convolution", "group_convolution_backprop_data"
WINDOWS: dict[str, Make] = {
    "convolution": convolution(5, 4, 3, 3, pads_begin=[1, 0], pads_end=[0, 2], dilations=[1, 2], strides=[2, 1]),
    "same upper": convolution(5, 4, 2, 3, auto_pad="same_upper", strides=[2, 2]),
    "same lower": convolution(5, 4, 2, 3, auto_pad="same_lower", strides=[2, 2]),
    "valid": convolution(5, 4, 3, 3, auto_pad="valid", pads_begin=[1, 1]),
    "groups": convolution(2, 3, 2, 3, 3, op=GROUPS),
    "depthwise": convolution(4, 1, 1, 3, 3, op=GROUPS, auto_pad="same_upper"),
    "backprop": convolution(
        4, 5, 3, 3, op=BACK, strides=[2, 3], pads_begin=[1, 0], pads_end=[0, 1], output_padding=[1, 0]
    ),
    "backprop same": convolution(4, 5, 3, 4, op=BACK, strides=[2, 3], auto_pad="same_upper"),
    "backprop same output": convolution(4, 5, 3, 4, op=BACK, strides=[2, 3], auto_pad="same_lower", output=[11, 21]),
    "backprop output": convolution(4, 5, 3, 4, op=BACK, strides=[2, 3], pads_begin=[2, 1], output=[10, 20]),
    "backprop groups": convolution(2, 2, 3, 3, 3, op=BACK_GROUPS, strides=[2, 2], pads_begin=[1, 1], pads_end=[1, 1]),
    "filter of data": lambda x, **_: opset13.convolution(
        x, opset13.reshape(x, ints(4, 4, 3, 7), False), [1, 1], [1, 1], [1, 1], [1, 1]
    ),
    "max 1": of_x("max_pool", [2, 2], [0, 0], [1, 1], [3, 3], "floor", opset=openvino.opset1),
    "max ceil": lambda x, **_: opset16.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], "ceil").output(0),
    "max torch": lambda x, **_: opset16.max_pool(x, [3, 3], [1, 1], [1, 1], [1, 1], [2, 2], "ceil_torch").output(0),
    "max dilated": lambda x, **_: opset16.max_pool(x, [1, 1], [2, 2], [1, 0], [1, 0], [3, 3]).output(0),
    "max places": lambda x, **_: opset16.max_pool(x, [2, 2], [1, 1], [0, 0], [0, 0], [2, 2], axis=2).output(1),
    "max same": of_x("max_pool", [2, 2], [0, 0], [0, 0], [3, 3], "floor", "same_upper", opset=openvino.opset1),
    "average": of_x("avg_pool", [2, 2], [1, 1], [1, 1], [3, 3], True),
    "average with pads": of_x("avg_pool", [2, 2], [1, 1], [1, 1], [3, 3], False),
    "average ceil": of_x("avg_pool", [2, 2], [1, 0], [1, 0], [3, 3], False, "ceil"),
    "average ceil without": of_x("avg_pool", [2, 2], [1, 0], [1, 0], [3, 3], True, "ceil"),
    "average same": of_x("avg_pool", [2, 2], [0, 0], [0, 0], [3, 3], True, "floor", "same_lower"),
    "adaptive": of_x("adaptive_avg_pool", ints(3, 7)),
    "adaptive uneven": of_x("adaptive_avg_pool", ints(4, 3)),
    "adaptive maxima": lambda x, **_: opset13.adaptive_max_pool(x, ints(4, 3), "i32").output(0),
}

_UNARY = "abs acosh asinh atan ceil cos cosh erf exp floor hswish hsigmoid mish negative relu sigmoid sign sin sinh softplus softsign tan tanh is_nan is_inf is_finite"
ELEMENTS: dict[str, Make] = {name: of_x(name) for name in _UNARY.split()}
ELEMENTS |= {
    name: lambda x, name=name, **_: getattr(opset13, name)(opset13.sigmoid(x))
    for name in ("acos", "asin", "atanh", "log", "sqrt")
}
ELEMENTS |= {
    name: lambda x, name=name, **_: getattr(opset13, name)(x, opset13.floor(weights(4, 1, 7)))
    for name in (
        "add",
        "subtract",
        "multiply",
        "maximum",
        "minimum",
        "squared_difference",
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "less",
        "less_equal",
    )
}
ELEMENTS |= {
    name: lambda x, name=name, **_: getattr(opset13, name)(
        x,
        constant([[0.5], [-0.7], [1.5], [-2]])[..., None]
        if False
        else constant(np.float32([0.5, -0.7, 1.5, -2]).reshape(4, 1, 1)),
    )
    for name in ("divide", "mod", "floor_mod")
}
ELEMENTS |= {
    "power": lambda x, **_: opset13.power(opset13.exp(x), constant(1.5)),
    "logical": lambda x, **_: opset13.logical_xor(
        opset13.logical_or(opset13.greater(x, constant(1)), opset13.less(x, constant(-1))),
        opset13.logical_not(opset13.less(x, constant(0))),
    ),
    "logical and": lambda x, **_: opset13.logical_and(opset13.greater(x, constant(0)), opset13.less(x, constant(1))),
    "divide integers": lambda n, **_: opset13.divide(opset13.subtract(n, ints(3)), ints(2)),
    "mod integers": lambda n, **_: opset13.floor_mod(opset13.subtract(n, ints(3)), ints(2)),
    "swish": of_x("swish"),
    "swish by beta": of_x("swish", constant(1.7)),
    "gelu": of_x("gelu", "erf"),
    "gelu tanh": of_x("gelu", "tanh"),
    "prelu by channels": of_x("prelu", constant([0.1, 0.2, -0.3, 2])),
    "prelu by one": of_x("prelu", constant([0.1])),
    "prelu by rows": of_x("prelu", constant(np.float32([0.1, 0.2, -0.3, 2]).reshape(4, 1, 1))),
    "clamp": of_x("clamp", -0.5, 1.25),
    "clamp integers": lambda n, **_: opset13.clamp(n, 0.5, 2.5),
    "elu": of_x("elu", 0.7),
    "selu": of_x("selu", constant(1.7), constant(1.05)),
    "hard sigmoid": of_x("hard_sigmoid", constant(0.2), constant(0.4)),
    "round": lambda x, **_: opset13.round(
        opset13.multiply(opset13.floor(opset13.multiply(x, constant(4))), constant(0.5)), "half_to_even"
    ),
    "round away": lambda x, **_: opset13.round(
        opset13.multiply(opset13.floor(opset13.multiply(x, constant(4))), constant(0.5)), "half_away_from_zero"
    ),
    "select": lambda x, **_: opset13.select(opset13.greater(x, constant(0)), x, weights(4, 1, 1)),
    "convert": lambda x, **_: opset13.convert(opset13.multiply(x, constant(3)), np.int32),
    "convert like": lambda x, n, **_: opset13.convert_like(opset13.multiply(x, constant(3)), n),
    "to bool": lambda n, **_: opset13.convert(n, np.bool_),
    "bitwise": lambda n, **_: opset13.bitwise_and(n, opset13.bitwise_or(ints(1), opset13.bitwise_not(n))),
    "fake quantize": of_x("fake_quantize", constant(-1), constant(1), constant(-3), constant(3), 30),
}

MOVES: dict[str, Make] = {
    "reshape": of_x("reshape", ints(0, 2, -1, 7), True),
    "transpose": of_x("transpose", ints(0, 2, 3, 1)),
    "transpose all": of_x("transpose", constant([], np.int64)),
    "squeeze": lambda x, **_: opset13.squeeze(opset13.unsqueeze(x, ints(1, -1)), ints(-1)),
    "squeeze all": lambda x, **_: openvino.opset15.squeeze(opset13.unsqueeze(x, ints(1, 5))),
    "concat": lambda x, **_: opset13.concat([x, opset13.relu(x), weights(2, 1, 6, 7)], 1),
    "split": lambda x, **_: opset13.split(x, constant(1, np.int64), 2).output(1),
    "split variously": lambda x, **_: opset13.variadic_split(x, constant(-1, np.int64), ints(1, -1, 2)).output(1),
    "broadcast": lambda x, **_: opset13.broadcast(opset13.unsqueeze(x, ints(2)), ints(2, 4, 3, 6, 7)),
    "broadcast by axes": lambda y, **_: opset13.broadcast(
        opset13.reduce_sum(y, ints(1), False), ints(2, 3, 8), ints(0, 2), "explicit"
    ),
    "broadcast both": lambda y, **_: opset13.broadcast(
        opset13.reduce_sum(y, ints(1), True), ints(3, 1), broadcast_spec="bidirectional"
    ),
    "tile": of_y("tile", ints(2, 1, 3)),
    "tile fewer": of_y("tile", ints(3)),
    "tile more": of_y("tile", ints(2, 1, 1, 3)),
    "pad": of_x("pad", ints(0, 1, 2, 0), ints(0, 0, 1, 3), "constant", constant(1.5)),
    "pad zero": of_x("pad", ints(0, 0, 2, 0), ints(0, 0, 1, 3), "constant"),
    "pad edge": of_x("pad", ints(0, 0, 2, 0), ints(0, 0, 1, 3), "edge"),
    "pad reflect": of_x("pad", ints(0, 0, 2, 0), ints(0, 0, 1, 3), "reflect"),
    "pad symmetric": of_x("pad", ints(0, 0, 2, 1), ints(0, 0, 1, 3), "symmetric"),
    "pad negative": of_x("pad", ints(0, 0, -1, 1), ints(0, 0, 1, -2), "constant", constant(0)),
    "depth to space": of_x("depth_to_space", "blocks_first", 2),
    "depth to space deep": of_x("depth_to_space", "depth_first", 2),
    "space to depth": lambda x, **_: opset13.space_to_depth(opset13.concat([x, x], 3), "blocks_first", 2),
    "space to depth deep": lambda x, **_: opset13.space_to_depth(opset13.concat([x, x], 3), "depth_first", 2),
    "depth to space 3d": lambda y, **_: opset13.depth_to_space(
        opset13.reshape(y, ints(1, 8, 1, 2, 5), False), "blocks_first", 2
    ),
    "depth to space 3d deep": lambda y, **_: opset13.depth_to_space(
        opset13.reshape(y, ints(1, 16, 1, 1, 5), False), "depth_first", 2
    ),
    "space to depth 3d": lambda y, **_: opset13.space_to_depth(
        opset13.reshape(y, ints(1, 1, 2, 4, 10), False), "blocks_first", 2
    ),
    "space to batch": of_x("space_to_batch", ints(1, 1, 2, 3), ints(0, 0, 1, 0), ints(0, 0, 1, 2)),
    "batch to space": lambda x, **_: opset13.batch_to_space(
        opset13.concat([x, x, x], 0), ints(1, 1, 2, 3), ints(0, 0, 1, 0), ints(0, 0, 1, 2)
    ),
    "shuffle": of_x("shuffle_channels", 1, 2),
    "roll": of_x("roll", ints(2, -3), ints(-1, 2)),
    "range": lambda y, **_: opset13.add(
        opset13.range(constant(0, np.int64), constant(8, np.int64), constant(1, np.int64), "f32"), y
    ),
    "shape": lambda x, **_: opset13.add(opset13.shape_of(x), ints(1)),
    "backwards": lambda x, **_: NodeFactory("opset1").create(
        "Reverse", [x.output(0), ints(3, 1).output(0)], {"mode": "index"}
    ),
    "backwards by mask": lambda x, **_: NodeFactory("opset1").create(
        "Reverse", [x.output(0), opset13.constant([True, False, False, True]).output(0)], {"mode": "mask"}
    ),
    "reverse": lambda x, **_: opset13.reverse_sequence(x, ints(3, 5), 0, 2),
    "reverse other": lambda x, **_: opset13.reverse_sequence(x, ints(3, 2, 1, 4), 1, -1),
}


def strided(starts: list[int], stops: list[int], steps: list[int] | None = None, **masks: list[int]) -> Make:
    count = len(starts)
    given = {name: masks.get(name, [0] * count) for name in ("begin", "end", "new", "shrink", "ellipsis")}
    return lambda x, **_: opset13.strided_slice(
        x,
        ints(*starts),
        ints(*stops),
        ints(*(steps or [1] * count)),
        given["begin"],
        given["end"],
        given["new"],
        given["shrink"],
        given["ellipsis"],
    )


def of_indices(name: str, indices: Any, *more: Any, **given: Any) -> Make:
    return lambda x, **_: getattr(opset13, name)(x, constant(indices, np.int64), *more, **given)


INDICES: dict[str, Make] = {
    "slice": of_x("slice", ints(5, -1), ints(1, -100), ints(-2, -1), ints(2, 3)),
    "slice all": of_x("slice", ints(0, 1, 1, 2), ints(2, 3, -1, 2**31), ints(1, 1, 2, 2)),
    "strided": strided([0, 1, 2], [0, 3, 6], [1, 1, 2], begin=[1, 0, 0], end=[1, 0, 0]),
    "strided back": strided([0, 0, -1], [0, 0, -7], [1, 1, -2], begin=[1, 1, 0], end=[1, 1, 0]),
    "strided back masked": strided([0, 0, 0], [0, 0, 0], [1, 1, -2], begin=[1, 1, 1], end=[1, 1, 1]),
    "strided shrinks": strided([0, -1, 1], [1, 0, 5], shrink=[1, 1, 0]),
    "strided adds": strided([0, 0, 1], [0, 0, 3], begin=[1, 1, 0], end=[1, 1, 0], new=[0, 1, 0]),
    "strided ellipsis": strided([0, 0, 2], [0, 0, 5], ellipsis=[0, 1, 0], begin=[1, 0, 0], end=[1, 0, 0]),
    "strided all": strided([0, 0, 0, 1], [1, 0, 0, 2], ellipsis=[0, 1, 0, 0], new=[0, 0, 1, 0], shrink=[1, 0, 0, 1]),
    "gather": lambda x, **_: opset13.gather(x, constant([[2, 0], [-1, 1]], np.int64), constant(1, np.int64)),
    "gather one": lambda x, **_: opset13.gather(x, constant(2, np.int32), constant(-1, np.int64)),
    "gather of data": lambda y, n, **_: opset13.gather(y, n, constant(1, np.int64)),
    "gather batch": lambda y, n, **_: opset13.gather(y, n, constant(1, np.int64), 1),
    "gather batch behind": lambda x, n, **_: opset13.gather(x, n, constant(3, np.int64), 1),
    "gather 1": lambda y, n, **_: openvino.opset1.gather(y, n, constant(2, np.int64)),
    "gather elements": of_indices("gather_elements", np.arange(2 * 4 * 2 * 7).reshape(2, 4, 2, 7) % 6, 2),
    "gather rows": of_indices("gather_nd", [[0, 3], [1, 2]]),
    "gather rows of batch": lambda x, **_: opset13.gather_nd(x, constant([[[3, 1]], [[2, 5]]], np.int64), 1),
    "gather rows of batches": lambda x, **_: opset13.gather_nd(
        x, constant(np.arange(8).reshape(2, 4, 1) % 6, np.int64), 2
    ),
    "gather rows 5": lambda x, **_: openvino.opset5.gather_nd(
        x, constant(np.arange(8).reshape(2, 4, 1) % 6, np.int64), 2
    ),
    "scatter": lambda x, **_: opset13.scatter_update(x, ints(5, 1), weights(2, 4, 2, 7), constant(2, np.int64)),
    "scatter rows by matrix": lambda x, **_: opset13.scatter_update(
        x, constant([[5, 1], [0, 2]], np.int64), weights(2, 4, 2, 2, 7), constant(2, np.int64)
    ),
    "scatter first": lambda x, **_: opset13.scatter_update(x, ints(1), weights(1, 4, 6, 7), constant(0, np.int64)),
    "scatter elements": lambda x, **_: opset13.scatter_elements_update(
        x, constant([[[[1, 3]]]], np.int64), weights(1, 1, 1, 2), constant(3, np.int64), "sum"
    ),
    "scatter rows": lambda x, **_: opset13.scatter_nd_update(x, constant([[0, 1], [1, 3]], np.int64), weights(2, 6, 7)),
    "top": lambda x, **_: opset13.topk(x, constant(3, np.int64), 2, "max", "value").output(0),
    "top places": lambda x, **_: opset13.topk(x, constant(3, np.int64), 2, "min", "value", "i64").output(1),
    "top by places": lambda x, **_: opset13.topk(x, constant(3, np.int64), 3, "max", "index").output(0),
    "one hot from the end": lambda n, **_: opset16.one_hot(
        opset13.subtract(n, opset13.constant(2, n.get_element_type())),
        constant(4, np.int64),
        constant(2.0),
        constant(-1.0),
        1,
        "normalize",
    ),
    "one hot": lambda n, **_: opset13.one_hot(n, constant(4, np.int64), constant(2.0), constant(-1.0), 1),
    "sample": lambda x, **_: opset13.grid_sample(
        x,
        constant(np.random.default_rng(0).uniform(-1.1, 1.1, (2, 3, 5, 2))),
        {"mode": "bilinear", "padding_mode": "zeros", "align_corners": False},
    ),
    "sample corners": lambda x, **_: opset13.grid_sample(
        x,
        constant(np.random.default_rng(0).uniform(-1.1, 1.1, (2, 3, 5, 2))),
        {"mode": "nearest", "padding_mode": "border", "align_corners": True},
    ),
    "align": lambda x, **_: opset13.roi_align(
        x, constant([[0, 0, 5, 4], [1.5, 1, 4, 5]]), constant([0, 1], np.int32), 2, 3, 2, 0.5, "avg", "asymmetric"
    ),
}


def interpolate(
    mode: str,
    sizes: Any = None,
    scales: Any = None,
    coordinates: str = "half_pixel",
    nearest: str = "round_prefer_floor",
    opset: int = 11,
    **given: Any,
) -> Make:
    def make(x: Any, **_: Any) -> Any:
        by, axes = "sizes" if sizes else "scales", ints(2, 3)
        numbers = ints(*sizes) if sizes else constant(scales)
        named = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest} | given
        if opset == 11:
            return openvino.opset11.interpolate(x, numbers, mode, by, axes=axes, **named)
        out = sizes or [int(extent * scale) for extent, scale in zip((6, 7), scales, strict=True)]
        factors = constant(scales or [size / extent for extent, size in zip((6, 7), sizes, strict=True)])
        named |= {"mode": mode, "shape_calculation_mode": by}
        return NodeFactory("opset4").create(
            "Interpolate", [x.output(0), ints(*out).output(0), factors.output(0), axes.output(0)], named
        )

    return make


RESIZES: dict[str, Make] = {
    "nearest": interpolate("nearest", scales=[2, 2], coordinates="asymmetric", nearest="floor"),
    "nearest 4": interpolate("nearest", sizes=[13, 5], opset=4),
    "nearest simple": interpolate("nearest", sizes=[13, 5], coordinates="asymmetric", nearest="simple", opset=4),
    "nearest tf": interpolate("nearest", sizes=[13, 5], coordinates="tf_half_pixel_for_nn", nearest="floor"),
    "nearest corners": interpolate("nearest", sizes=[13, 5], coordinates="align_corners", nearest="round_prefer_ceil"),
    "nearest ceil": interpolate("nearest", scales=[1.5, 0.7], nearest="ceil"),
    "linear onnx": interpolate("linear_onnx", sizes=[13, 5]),
    "linear onnx scales": interpolate("linear_onnx", scales=[1.5, 0.7], coordinates="pytorch_half_pixel"),
    "linear corners": interpolate("linear_onnx", sizes=[11, 13], coordinates="align_corners"),
    "linear": interpolate("linear", sizes=[11, 13], coordinates="asymmetric", opset=4),
    "cubic": interpolate("cubic", sizes=[11, 4]),
    "cubic corners": interpolate("cubic", scales=[2, 3], coordinates="align_corners", cube_coeff=-0.5),
    "pillow": interpolate("bilinear_pillow", sizes=[11, 4]),
    "cubic pillow": interpolate("bicubic_pillow", sizes=[4, 3], cube_coeff=-0.5),
    "padded": interpolate("linear_onnx", sizes=[13, 5], opset=4, pads_begin=[0, 0, 1, 0], pads_end=[0, 0, 0, 2]),
    "first version": lambda x, **_: openvino.opset1.interpolate(
        x,
        ints(12, 14),
        {
            "axes": [2, 3],
            "mode": "nearest",
            "align_corners": False,
            "antialias": False,
            "pads_begin": [0],
            "pads_end": [0],
        },
    ),
    "first version linear": lambda x, **_: openvino.opset1.interpolate(
        x,
        ints(11, 13),
        {
            "axes": [2, 3],
            "mode": "linear",
            "align_corners": True,
            "antialias": False,
            "pads_begin": [0],
            "pads_end": [0],
        },
    ),
}

NORMS: dict[str, Make] = {
    "softmax": of_x("softmax", 1),
    "softmax last": of_x("softmax", -1),
    "softmax 1": of_x("softmax", 1, opset=openvino.opset1),
    "log softmax": of_x("log_softmax", -1),
    "mvn": of_x("mvn", ints(2, 3), True, 1e-5, "inside_sqrt"),
    "mvn outside": of_y("mvn", ints(-1), True, 1e-3, "outside_sqrt"),
    "mvn mean": of_y("mvn", ints(-1), False, 1e-3, "outside_sqrt"),
    "mvn 2": of_x("mvn", None, True, True, 1e-5, opset=openvino.opset2)
    if False
    else (lambda x, **_: openvino.opset2.mvn(x, across_channels=False, normalize_variance=True, eps=1e-3)),
    "normalize": of_x("normalize_l2", ints(1), 1e-5, "add"),
    "normalize max": of_x("normalize_l2", ints(1, 2), 10.0, "max"),
    "lrn": of_x("lrn", ints(1), 0.1, 0.75, 1.0, 3),
    "batch norm": of_x(
        "batch_norm_inference",
        constant([1, 2, 3, 4]),
        constant([1, -1, 0, 2]),
        constant([0, 1, 2, 3]),
        constant([1, 2, 3, 4]),
        1e-3,
    ),
    "batch norm 1": lambda x, **_: openvino.opset1.batch_norm_inference(
        x, constant([1, 2, 3, 4]), constant([1, -1, 0, 2]), constant([0, 1, 2, 3]), constant([1, 2, 3, 4]), 1e-3
    ),
    "group norm": of_x("group_normalization", constant([1, 2, 3, 4]), constant([1, -1, 0, 2]), 2, 1e-3),
}
for _name in ("l1", "l2", "max", "mean", "min", "prod", "sum"):
    NORMS[f"reduce {_name}"] = of_x(f"reduce_{_name}", ints(1, -1), False)
    NORMS[f"reduce {_name} kept"] = of_x(f"reduce_{_name}", ints(2), True)
NORMS |= {
    "reduce and": lambda x, **_: opset13.reduce_logical_and(opset13.greater(x, constant(-1)), ints(3), False),
    "reduce or": lambda x, **_: opset13.reduce_logical_or(opset13.greater(x, constant(1)), ints(2, 3), True),
    "matmul": lambda y, **_: opset13.matmul(y, weights(8, 3), False, False),
    "matmul by columns": lambda y, **_: opset13.matmul(y, weights(3, 8), False, True),
    "matmul left": lambda y, **_: opset13.matmul(weights(5, 3), y, True, False),
    "matmul vector": lambda y, **_: opset13.matmul(y, weights(8), False, True),
    "matmul of data": lambda y, **_: opset13.matmul(y, y, False, True),
    "matmul of data left": lambda y, **_: opset13.matmul(y, opset13.relu(y), True, False),
    "cum sum": lambda y, **_: opset13.cum_sum(y, constant(1, np.int64), True, True),
    "einsum": lambda y, **_: opset13.einsum([y, weights(8, 3)], "abc,cd->adb"),
    "attention": lambda y, **_: opset13.scaled_dot_product_attention(y, opset13.relu(y), y, weights(5, 5)),
    "attention causal": lambda y, **_: opset13.scaled_dot_product_attention(y, y, opset13.relu(y), causal=True),
    "attention seen": lambda y, **_: opset13.scaled_dot_product_attention(
        y, y, y, constant(np.eye(5) + np.eye(5, k=1), bool), constant(0.7)
    ),
}
GROUPS_OF_LAYERS: dict[str, dict[str, Make]] = {
    "windows": WINDOWS,
    "elements": ELEMENTS,
    "moves": MOVES,
    "indices": INDICES,
    "resizes": RESIZES,
    "norms": NORMS,
    "recurrent": RECURRENT,
}
