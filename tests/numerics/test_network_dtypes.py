"""`tvmconv compile --dtype`: networks that compute in another type than their models, beside these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")
pytest.importorskip("onnxruntime")

import tvm
from models import model, save, value
from onnx import helper, numpy_helper
from tvm import relax

from tvmconv import cli
from tvmconv.accuracy import network_error, network_tolerance
from tvmconv.errors import InputError
from tvmconv.network.rewrite.compute_in import compute_in
from tvmconv.runtime.networks.network import load_network

TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def network_of(folder: Path) -> str:
    """Write a network of a convolution, a normalization, two outputs of one operator, a comparison and places."""
    rng = np.random.default_rng(0)
    arrays = {"w": rng.standard_normal((8, 4, 3, 3)) / 6, "scale": rng.uniform(0.5, 2, 8), "least": np.array(-3e38)}
    weights = [numpy_helper.from_array(np.asarray(each, np.float32), name) for name, each in arrays.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["convolved"], pads=[1] * 4),
        helper.make_node("LayerNormalization", ["convolved", "scale"], ["normal"], axis=-1),
        helper.make_node("Split", ["normal"], ["left", "right"], axis=1, num_outputs=2),
        helper.make_node("Less", ["left", "right"], ["less"]),
        helper.make_node("Where", ["less", "left", "least"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["y"], axis=-1),
        helper.make_node("ArgMax", ["right"], ["places"], axis=1),
        helper.make_node("Cast", ["less"], ["share"], to=1),
    ]
    outputs = [value(each, None) for each in ("right", "y", "share")]
    return save(model(nodes, [value("x", [2, 4, 6, 8])], outputs, weights=weights, opset=18), folder)


@pytest.mark.parametrize(
    "dtype", ["bf16", pytest.param("f16", marks=pytest.mark.slow), pytest.param("f32", marks=pytest.mark.slow)]
)
def test_networks_compute_in_a_type(dtype: str, tmp_path: Path) -> None:
    library = str(tmp_path / "network.so")
    assert cli.main(["compile", network_of(tmp_path), "-o", library, "--dtype", dtype, "--cut", "right"]) == 0
    network = load_network(library)
    assert {each.dtype for each in (*network.inputs, *network.outputs)} == {TYPES[dtype]}
    assert [f"-{dtype}" in row["signature"] for row in network.description["report"]] == [True]


@pytest.mark.slow
def test_libraries_for_c_compute_in_a_type(tmp_path: Path) -> None:
    source = network_of(tmp_path)
    folder = tmp_path / "made"
    command = [
        "compile",
        source,
        "-o",
        str(folder),
        "--format",
        "c",
        "--dtype",
        "f16",
        "--require-comparison",
        "--cut",
        "right",
    ]
    assert cli.main(command) == 0 and (folder / "smoke.bin").exists()


def value_of(mod: Any, data: Any) -> list[Any]:
    machine = relax.VirtualMachine(tvm.compile(relax.transform.DecomposeOpsForInference()(mod), "llvm"), tvm.cpu())
    return [each.numpy() for each in machine["main"](tvm.runtime.tensor(data))]


@pytest.mark.slow
def test_every_operator_takes_and_gives_the_type(tmp_path: Path) -> None:
    """Compare a graph with what stands for it in f16: masks beyond its range, tuples, comparisons and conversions."""
    from tvmconv.network.read.onnx.reader import read_onnx

    mod = read_onnx(network_of(tmp_path))
    made = compute_in(mod, "f16")
    types = (
        {str(each.dtype) for each in made["main"].ret_type.fields} if hasattr(made["main"], "ret_type") else {"float16"}
    )
    assert types == {"float16"} and str(made["main"].params[0].ty.dtype) == "float16"
    data = np.random.default_rng(1).standard_normal((2, 4, 6, 8)).astype(np.float32)
    right, answers = value_of(mod, data), value_of(made, data.astype(np.float16))
    assert network_error(answers[0], right[0]) <= network_tolerance("f16")
    assert np.mean(np.abs(answers[2] - right[2])) <= 0.02


def test_double_precision_becomes_the_type() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2,), "float64"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(relax.op.add(x, relax.const(np.array([1.5, 2.0]), "float64"))))
    main = compute_in(builder.finalize(), "f32")["main"]
    assert str(main.params[0].ty.dtype) == str(main.ret_ty.dtype) == "float32"


def test_quantized_networks_are_refused() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 4), "float32"))
    with builder.function("main", [x]):
        numbers = relax.const(np.float32(0.03)), relax.const(np.uint8(128))
        integers = builder.emit(relax.op.quantize(x, *numbers, axis=0, out_dtype="uint8"))
        builder.emit_func_output(builder.emit(relax.op.dequantize(integers, *numbers, axis=0)))
    with pytest.raises(
        InputError, match="--dtype bf16 is for networks in floating-point numbers, and this one is quantised"
    ):
        compute_in(builder.finalize(), "bf16")
