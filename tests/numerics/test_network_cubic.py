"""Cubic resizes of ONNX models to sizes, beside onnxruntime's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models import model, save, value
from onnx import helper, numpy_helper

pytest.importorskip("onnxruntime")
from tests.numerics.test_network_onnx import loaded, weight
from tvmconv.network.read.onnx import compare as compared
from tvmconv.network.read.onnx.reader import fix_shapes


@pytest.mark.parametrize("excludes", [0, 1])
@pytest.mark.parametrize("transformation", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
def test_cubic_resizes_to_sizes(transformation: str, excludes: int, tmp_path: Path) -> None:
    """Channels first and last, to more and less, of planes of one column, too: their corners have no distance."""
    more = {"mode": "cubic", "coordinate_transformation_mode": transformation, "exclude_outside": excludes}
    sizes = {"wide": (1, 3, 20, 31), "less": (1, 3, 4, 5), "thin": (1, 8, 12, 1)}
    nodes = [helper.make_node("Resize", ["x", "", "", name], [name[0]], **more) for name in ("wide", "less")]
    nodes += [helper.make_node("Conv", ["x", "v"], ["c"], strides=[1, 9])]
    nodes += [helper.make_node("Resize", ["c", "", "", "thin"], ["t"], cubic_coeff_a=-0.5, **more)]
    weights = [
        weight("v", 8, 3, 1, 1),
        *(numpy_helper.from_array(np.array(size), name) for name, size in sizes.items()),
    ]
    outputs = [value(name, None) for name in "wlt"]
    source = save(model(nodes, [value("x", [1, 3, 7, 9])], outputs, weights, opset=19), tmp_path)
    assert compared.differences(fix_shapes(source), loaded(source, tmp_path)) == []
