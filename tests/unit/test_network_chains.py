"""Relax modules before compilation: fused operators, refusals, and messages of commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from models import conv_model, model, save, value
from near import assert_near
from onnx import helper
from tvm import IRModule, relax

from tvmconv import cli
from tvmconv.dtypes import numpy_dtype
from tvmconv.epilogue import STEPS, Step, format_epilogue
from tvmconv.errors import BuildError, SourceError, TvmconvError, TvmconvWarning
from tvmconv.frontends.activations import POINTS, recognise
from tvmconv.frontends.shapes import Bucket
from tvmconv.network.ir.graph import Graph
from tvmconv.network.ir.nodes import carry
from tvmconv.network.ir.problem_of import NotCoveredError, is_convolution
from tvmconv.network.kernels.fuse_epilogue import EpilogueChain, follow
from tvmconv.network.lower import tvm_errors
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.network.rewrite.simplify import simplify
from tvmconv.reference import apply_step, compute

op, nn = relax.op, relax.op.nn
RNG = np.random.default_rng(0)
X = RNG.standard_normal((1, 5, 5, 4))
W = RNG.standard_normal((6, 4, 3, 3)).astype(np.float32)


def const(numbers: Any) -> relax.Expr:
    """Return f32 numbers as a constant."""
    return relax.const(np.array(numbers, np.float32))


def chains_of(
    after: Callable[[relax.Expr], relax.Expr], dtype: str = "float32", **attributes: Any
) -> list[EpilogueChain]:
    """Return the chains of a function with a convolution and the operators of `after`."""
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 5, 5, 4), dtype))
    with builder.function("main", [data]):
        with builder.dataflow():
            layouts = {"data_layout": "NHWC", "kernel_layout": "OIHW"} | attributes
            convolved = builder.emit(nn.conv2d(data, relax.const(W, dtype), padding=1, **layouts))
            output = builder.emit_output(after(convolved))
        builder.emit_func_output(output)
    graph = Graph(simplify(builder.finalize())["main"])
    taken: dict[Any, Any] = {}
    calls = [
        variable for variable in graph.values if (call := graph.call(variable)) is not None and is_convolution(call)
    ]
    return [follow(each, graph, taken) for each in calls]


@pytest.mark.parametrize(
    ("after", "steps"),
    [
        (nn.relu, "relu"),
        (lambda y: op.clip(y, 0, 6), "clip_0_6"),
        (lambda y: op.clip(y, -2e4, 3e5), "clip_-20000_300000"),
        (lambda y: nn.leakyrelu(y, 0.2), "leaky_0.2"),
        (lambda y: nn.prelu(y, const(np.arange(6) / 8), 3), "prelu"),
        (lambda y: op.multiply(y, op.sigmoid(y)), "silu"),
        (lambda y: op.divide(op.multiply(y, op.clip(op.add(y, const(3)), 0, 6)), const(6)), "hardswish"),
        (lambda y: op.clip(op.add(op.multiply(y, const(0.25)), const(0.5)), 0, 1), "hardsigmoid_0.25_0.5"),
        (nn.gelu, "gelu"),
        (lambda y: op.multiply(op.multiply(y, const(0.5)), op.add(op.erf(op.divide(y, const(2**0.5))), const(1))), "gelu"),
        (lambda y: op.add(nn.relu(y), op.multiply(const(-0.5), nn.relu(op.subtract(const(1), op.exp(y))))), "elu_0.5"),
        (lambda y: op.add(op.multiply(nn.relu(op.subtract(const(range(6)), y)), const(range(1, 7))), y), ""),
        (lambda y: op.multiply(op.tanh(op.divide(y, const(range(1, 7)))), const(range(6))), "tanh-scale"),
        (op.exp, ""),
    ],
)  # fmt: skip
def test_what_follows_a_convolution_becomes_its_epilogue(after: Callable[[Any], Any], steps: str) -> None:
    (chain,) = chains_of(after)
    assert format_epilogue(chain.problem.epilogue) == steps


def test_numbers_by_channel_go_into_filter_and_bias() -> None:
    scale, shift = np.arange(1, 7, dtype=np.float32), np.arange(6, dtype=np.float32)
    (chain,) = chains_of(lambda y: nn.relu(op.add(op.divide(op.subtract(const(shift), y), const(scale)), const(shift))))
    assert chain.problem.bias and format_epilogue(chain.problem.epilogue) == "relu"
    plain = chains_of(lambda y: y)[0].problem
    filter_ = np.moveaxis(W, (1, 0), (-2, -1))
    expected = np.maximum((shift - compute(plain, X, filter_)) / scale + shift, 0)
    answer = compute(chain.problem, X, np.moveaxis(chain.filter, (1, 0), (-2, -1)), chain.vectors["bias"])
    assert_near(answer, expected, summed=W[0].size, layers=3, dtype="float32")


@pytest.mark.parametrize(
    "step",
    [
        Step(name, (0.125, 0.5)[: len(numbers)])
        for name, numbers in STEPS.items()
        if name not in ("scale", "add", "prelu")
    ],
    ids=str,
)
def test_every_activation_is_recognised_by_its_values(step: Step) -> None:
    with np.errstate(all="ignore"):
        values = apply_step(step, POINTS, {})
    assert recognise(values) == step
    assert recognise(values + 1e-3 * np.sin(POINTS)) is None


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("step", ["silu", "hardswish", "gelu", "gelu_tanh"])
def test_numbers_of_formulas_may_be_rounded_but_factors_count(step: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        values = apply_step(Step(step), POINTS, {})
        quick = apply_step(Step("silu"), 1.702 * POINTS, {}) / 1.702
    sixth = float(np.array(1 / 6).astype(numpy_dtype(dtype)))
    assert recognise(values * (6 * sixth), dtype) == Step(step) and recognise(values * (6 * sixth)) is None
    below = 1 - float(ml_dtypes.finfo(numpy_dtype(dtype)).epsneg)
    assert recognise(values * below, dtype) is None and recognise(POINTS * below, dtype) is None
    assert recognise(quick, dtype) is None


@pytest.mark.parametrize(
    ("dtype", "why"), [("float64", "its types are float64"), ("float32", "its output is NCHW, its input NHWC")]
)
def test_what_no_kernel_covers_says_why(dtype: str, why: str) -> None:
    with pytest.raises(NotCoveredError, match=why):
        chains_of(lambda y: y, dtype, out_layout="NHWC" if dtype == "float64" else "NCHW")


def test_what_the_frontend_lacks_is_named(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"]), helper.make_node("Det", ["y"], ["z"])]
    lacking = model(nodes, [value("x", [1, 3, 8, 8]), value("w", [4, 3, 1, 1])])
    with pytest.raises(SourceError, match="TVM's ONNX frontend lacks Det; the convolutions alone can be built"):
        read_onnx(save(lacking, tmp_path))


def test_an_error_in_our_own_code_is_not_tvms() -> None:
    with pytest.raises(BuildError, match=r"^tvmconv cannot compile the network: .*; please report it"), tvm_errors():
        carry(None, None)  # type: ignore[arg-type]
    with pytest.raises(BuildError, match=r"^TVM cannot compile the network: "), tvm_errors():
        IRModule({})["main"]


def test_what_tvm_cannot_compile_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stumble(*_: object, **__: object) -> None:
        raise RuntimeError("a pass\nstumbled")

    monkeypatch.setattr("tvmconv.network.compile.schedule_functions", stumble)
    small = model([helper.make_node("Conv", ["x", "w"], ["y"])], [value("x", [1, 3, 4, 4]), value("w", [4, 3, 3, 3])])
    assert cli.main(["compile", save(small, tmp_path), "-o", str(tmp_path / "small.so")]) == 1
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("tvmconv compile: "))
    assert "TVM cannot compile the network: stumbled" in line and "tvmconv build compiles its convolutions" in line


def test_free_shapes_and_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        read_onnx(str(tmp_path / "nothing.onnx"))
    free = save(conv_model(x=(None, 3, 8, 8)), tmp_path)
    with pytest.raises(SourceError, match="The model leaves free"):
        read_onnx(free)
    with pytest.raises(SourceError, match="has no input 'y'"):
        read_onnx(free, Bucket({"y": (1, 3, 8, 8)}))


def test_commands_refuse_what_they_cannot_take(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compile", "model.toml", "-o", str(tmp_path / "m.so")]) == 2
    assert "tvmconv compile reads .onnx" in capsys.readouterr().err
    assert cli.main(["compile", "model.onnx", "-o", str(tmp_path / "none" / "m.so")]) == 2
    assert f"there is no folder {tmp_path / 'none'}; make it first" in capsys.readouterr().err
    assert cli.main(["run", str(tmp_path / "none.so")]) == 2
    assert "write it with: tvmconv compile" in capsys.readouterr().err
    (tmp_path / "a bundle").mkdir()
    assert cli.main(["run", str(tmp_path / "a bundle")]) == 2
    assert f"'{tmp_path / 'a bundle'}' is a folder; give the library in it" in capsys.readouterr().err
    (tmp_path / "a bundle" / "manifest.json").write_text("{}")
    assert cli.main(["run", str(tmp_path / "a bundle")]) == 2
    assert "is a bundle, of convolutions alone" in capsys.readouterr().err
    (tmp_path / "text.so").write_text("no library")
    assert cli.main(["list", str(tmp_path / "text.so")]) == 2
    assert f"tvmconv run {tmp_path / 'text.so'} --bench gives the times" in capsys.readouterr().err
    (tmp_path / "model.pt2").touch()
    assert cli.main(["bench", str(tmp_path / "model.pt2")]) == 2
    assert f"make one with: tvmconv build {tmp_path / 'model.pt2'} -o" in capsys.readouterr().err
    assert cli.main(["run", "m.so", "--bench", "--against", "m.onnx", "--concurrency", "2"]) == 2
    assert "leave out --concurrency" in capsys.readouterr().err
    assert cli.main(["run", str(tmp_path / "text.so")]) == 2
    assert "text.so is no network that tvmconv compile wrote: it is too short" in capsys.readouterr().err


def test_a_layout_that_tvm_cannot_give_is_an_error_in_words() -> None:
    builder = relax.BlockBuilder()
    data = relax.Var("x", relax.TensorType((1, 4, 5, 5), "float32"))
    with builder.function("main", [data]):
        with builder.dataflow():
            convolved = builder.emit(nn.conv2d(data, relax.const(W), padding=1))
            stacked = builder.emit(op.stack([convolved, const(np.ones((1, 6, 5, 5)))], axis=0))
            output = builder.emit_output(op.multiply(stacked, const(np.ones((1, 1, 1, 1, 1)))))
        builder.emit_func_output(output)
    mod = builder.finalize()
    with pytest.raises(TvmconvError, match="give layout='NCX'"):
        use_kernels(mod, "host", layout="NXC")
    with pytest.warns(TvmconvWarning, match="the network keeps its layout, NCX"):
        use_kernels(mod, "host")
