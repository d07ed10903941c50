"""ConvolutionBackpropData with `output_shape` and kept pads, against OpenVINO, which keeps them."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest

from tvmconv import ops, reference

openvino = pytest.importorskip("openvino")
# strides, dilations, pads_begin, pads_end, output_shape, output_padding
ROWS = list(itertools.product([(2,)], [(1,)], [(0,), (1,), (2,)], [(0,), (3,)], [(4,), (7,), (9,)], [(0,), (1,)]))
OTHERS = [
    ((1,), (2,), (3,), (0,), (6,), (0,)),
    ((3,), (2,), (5,), (1,), (11,), (2,)),
    ((2, 3), (1, 2), (1, 4), (2, 0), (9, 12), (0, 0)),
    ((3, 1), (2, 1), (0, 2), (0, 0), (14, 5), (1, 0)),
    ((1, 2, 2), (1, 1, 2), (2, 0, 1), (1, 0, 0), (3, 9, 8), (0, 1, 0)),
]
CASES = [
    *((case, "explicit") for case in (*ROWS, *OTHERS)),
    *itertools.product(OTHERS, ["valid", "same_upper", "same_lower"]),
]


def attributes_of(case: tuple[tuple[int, ...], ...]) -> dict[str, tuple[int, ...]]:
    names = ("strides", "dilations", "pads_begin", "pads_end", "output_shape", "output_padding")
    return dict(zip(names, case, strict=True))


def by_openvino(
    data: npt.NDArray[np.float32],
    filter_: npt.NDArray[np.float32],
    auto_pad: str,
    attributes: dict[str, tuple[int, ...]],
) -> npt.NDArray[np.float32]:
    from openvino import opset8

    shape = opset8.constant(np.array(attributes["output_shape"], np.int64))
    parameter = opset8.parameter(data.shape, np.float32)
    node = opset8.convolution_backprop_data(
        parameter, opset8.constant(filter_), output_shape=shape, auto_pad=auto_pad,
        **{name: list(value) for name, value in attributes.items() if name != "output_shape"},
    )  # fmt: skip
    model = openvino.Model([node], [parameter])
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.asarray(compiled([data])[0])


@pytest.mark.parametrize(("case", "auto_pad"), CASES, ids=str)
def test_kept_pads_are_openvinos(case: tuple[tuple[int, ...], ...], auto_pad: str) -> None:
    attributes = attributes_of(case)
    rank = len(case[0])
    data = np.arange(1.0, 1 + 2 * 4**rank, dtype=np.float32).reshape(1, 2, *[4] * rank)
    filter_ = (np.arange(2.0 * 3 * 3**rank, dtype=np.float32) % 7 - 3).reshape(2, 3, *[3] * rank)
    mine = {
        **attributes, "auto_pad": None if auto_pad == "explicit" else auto_pad, "data_format": "NCX",
        "filter_format": "OIX", "same_rule": "keep_pads",
    }  # fmt: skip
    problem = ops.convolution_backprop_data(data.shape, filter_.shape, **mine)
    assert problem.out_spatial == attributes["output_shape"]
    expected = by_openvino(data, filter_, auto_pad, attributes)
    np.testing.assert_array_equal(reference.convolution_backprop_data(data, filter_, **mine), expected)
