"""The register of repairs: what TVM (0.27) has wrong or lacks, and the files of the package that mend it or go around it.

Each test asks TVM itself for the right answer, and is expected to fail. One that passes, of a later TVM, fails the run: then the
files that it names need that repair no longer.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

pytest.importorskip("tvm")
import tvm
from tvm import relax, sym, tirx
from tvm.relax.frontend.onnx import from_onnx
from tvm_alone import answer_of, exported, module, ran, read, read_and_run, same

import tvmconv
from tvmconv.lowering.common.rewrites import substitute

op = relax.op
PACKAGE = Path(tvmconv.__file__).parent
X = np.array([[0.5, -1.0, 2.0, 3.0]], np.float32)
ROW = np.arange(7, dtype=np.float32).reshape(1, 1, 1, 7)
REGISTER: set[str] = set()
# How a file says of which TVM it speaks; not the version of a package.
_NAMED = re.compile(r"\b0\.27\b(?!\.)")


def mends(*files: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a test of what TVM has wrong, with the files that mend it."""
    REGISTER.update(files)
    return pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"mended in {', '.join(files)}")


def takes(message: str, call: Callable[[], Any]) -> Any:
    """Return what a call returns; assert that TVM does not end it with an error that has `message`."""
    try:
        return call()
    except Exception as error:
        if message in f"{type(error).__name__}: {error}":
            raise AssertionError(message) from error
        raise


# ONNX's frontend


@mends("network/read/onnx/converters.py")
def test_thresholds_of_what_is_no_number() -> None:
    same(read_and_run("ThresholdedRelu", np.array([np.nan, 2.0], np.float32), alpha=1.0), [0, 2])


@mends("network/read/onnx/converters.py")
def test_infinities_of_one_sign() -> None:
    same(read_and_run("IsInf", np.array([np.inf, -np.inf], np.float32), detect_negative=0), [True, False])


@mends("network/read/onnx/converters.py")
def test_exponents_of_another_type() -> None:
    given = np.array([4.0], np.float32), np.array([3], np.int32)
    same(takes("TypeError", lambda: read_and_run("Pow", *given)), [64])


@mends("network/read/onnx/converters.py")
def test_sums_of_infinite_powers() -> None:
    same(read_and_run("ReduceLogSumExp", np.array([[np.inf, 3]], np.float32), axes=[1]), [[np.inf]])


@mends("network/read/onnx/converters.py")
def test_slices_by_attributes() -> None:
    same(takes("", lambda: read_and_run("Slice", X, opset=9, starts=[1], ends=[3], axes=[1])), X[:, 1:3])


@mends("network/read/onnx/repair.py")
def test_regions_of_another_scale() -> None:
    data = np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8)
    regions = np.array([[0, 0, 8, 8]], np.float32), np.array([0], np.int64)
    given = {"output_height": 1, "output_width": 1, "sampling_ratio": 1}
    same(read_and_run("RoiAlign", data, *regions, opset=16, spatial_scale=0.5, **given), [[[[13.5]]]])


@mends("network/read/onnx/pads.py")
def test_pads_of_maximum_pools_that_are_the_same_below() -> None:
    data = ROW[..., :5].reshape(1, 1, 5)
    same(read_and_run("MaxPool", data, kernel_shape=[2], strides=[2], auto_pad="SAME_LOWER"), [[[0, 2, 4]]])


@mends("network/read/onnx/resize.py")
def test_resizes_by_scales_that_are_no_quotients() -> None:
    scales = np.array([], np.float32), np.array([1, 1, 1, 1.5], np.float32)
    answer = read_and_run("Resize", ROW, *scales, fixed=2, mode="linear", coordinate_transformation_mode="asymmetric")
    same(answer.reshape(-1), np.minimum(np.arange(10) / 1.5, 6))


@mends("network/read/onnx/recurrent.py")
def test_recurrent_layers() -> None:
    given = np.zeros((2, 1, 3), np.float32), np.zeros((1, 12, 3), np.float32), np.zeros((1, 12, 4), np.float32)
    takes("not supported", lambda: read("GRU", *given, fixed=2, hidden_size=4))


@mends("network/read/onnx/expand_functions.py")
@pytest.mark.parametrize("operator", ["Celu", "CenterCropPad", "RotaryEmbedding", "SoftmaxCrossEntropyLoss"])
def test_operators_that_onnx_defines_by_others(operator: str) -> None:
    takes("not supported", lambda: read(operator, X, opset=23))


@mends("network/read/onnx/decompose.py")
@pytest.mark.parametrize("operator", ["Col2Im", "DFT", "ReverseSequence", "STFT"])
def test_operators_that_onnx_defines_by_none(operator: str) -> None:
    takes("not supported", lambda: read(operator, X, opset=18))


def read_free(*nodes: onnx.NodeProto, **weights: np.ndarray) -> Any:
    """Return TVM's reading of ONNX nodes from x, whose last two extents are free, to y."""
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 3, "h", "w"])]
    fixed = [numpy_helper.from_array(each, name) for name, each in weights.items()]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info("y")], fixed)
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), opset=17)


@mends("network/read/onnx/sizes.py")
def test_arithmetic_of_free_shapes() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "k"], ["t"]),
        helper.make_node("Expand", ["x", "t"], ["y"]),
    ]
    takes("cannot handle ShapeExpr", lambda: read_free(*nodes, k=np.array([1, 1, 2, 2])))


@mends("network/read/onnx/free.py")
def test_pads_of_free_extents() -> None:
    takes(
        "not 'Var'",
        lambda: read_free(helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], auto_pad="SAME_UPPER")),
    )


# PyTorch's frontend


@mends("network/read/torch/elementwise.py")
def test_numbers_beside_integers() -> None:
    x = np.array([1, 3], np.int32)
    same(ran(exported(lambda torch, x: x + 0.5, x), x), [1.5, 3.5])


@mends("network/read/torch/indexing.py")
def test_indices_from_the_end() -> None:
    x, at = X.reshape(-1), np.array([-1, 0])
    same(ran(exported(lambda torch, x, at: x[at], x, at), x, at), [3, 0.5])


@mends("network/read/torch/scatter.py")
def test_what_truth_values_choose_is_written() -> None:
    x, chosen = X.reshape(-1), np.array([True, False, False, True])

    def write(torch: Any, x: Any, chosen: Any) -> Any:
        return torch.ops.aten.index_put(x, (chosen,), torch.zeros(()))

    takes("requires each index tensor to have integer dtype", lambda: exported(write, x, chosen))


@mends("network/read/torch/matmul.py")
def test_transposed_convolutions_of_three_dimensions() -> None:
    x, w = np.ones((1, 1, 2, 2, 2), np.float32), np.ones((1, 1, 1, 1, 1), np.float32)
    takes("", lambda: exported(lambda torch, x, w: torch.nn.functional.conv_transpose3d(x, w), x, w))


@mends("network/read/torch/pool_resize.py")
def test_divisors_of_averages() -> None:
    def pooled(torch: Any, x: Any) -> Any:
        return torch.nn.functional.avg_pool2d(x, (1, 7), divisor_override=3)

    same(ran(exported(pooled, ROW), ROW), [[[[7]]]])


@mends("network/read/torch/rare_decompositions.py")
@pytest.mark.parametrize("name", ["signbit", "erfc", "hypot"])
def test_rare_operators(name: str) -> None:
    takes("Unsupported", lambda: exported(lambda torch, x: getattr(torch, name)(x, *[x] * (name == "hypot")), X))


@mends("network/read/torch/rare_decompositions.py")
def test_logarithms_near_one() -> None:
    x = np.array([1e-10], np.float32)
    same(ran(exported(lambda torch, x: torch.log1p(x), x), x), x)


# Operators


@mends("network/operators/max_pool.py")
def test_maximum_pools_of_what_is_no_number() -> None:
    x = np.where(ROW == 0, np.nan, ROW)
    same(answer_of(lambda x: op.nn.max_pool2d(x, (1, 7)), x), [[[[np.nan]]]])


@mends("network/operators/minmax.py")
def test_greatest_of_what_is_no_number() -> None:
    same(answer_of(lambda x: op.max(x, 1), np.array([[np.nan, 1]], np.float32)), [np.nan])


@mends("network/operators/minmax.py")
def test_greatest_of_minus_infinity() -> None:
    same(answer_of(lambda x: op.max(x, 1), np.array([[-np.inf]], np.float32)), [-np.inf])


@mends("network/operators/minmax.py")
def test_products_with_zero() -> None:
    zero = relax.const(np.float32(0))
    same(answer_of(lambda x: op.multiply(x, zero), np.array([np.inf], np.float32)), [np.nan])


@mends("network/operators/minmax.py")
def test_what_differs_from_itself() -> None:
    same(answer_of(lambda x: op.not_equal(x, x), np.array([np.nan, 1], np.float32)), [True, False])


@mends("network/operators/division.py")
def test_remainders_beside_whole_multiples() -> None:
    three = relax.const(np.float32(3))
    same(answer_of(lambda x: op.floor_mod(x, three), np.array([2.9999998, 2**31], np.float32)), [2.9999998, 2])


@mends("network/operators/sort.py")
def test_sorts_of_what_is_no_number() -> None:
    x = np.array([2, np.nan, 1, 0, np.nan, 5, 4], np.float32)
    same(answer_of(lambda x: op.sort(x), x), np.sort(x))


@mends("network/operators/quantize.py")
def test_quantizers_of_what_is_no_number() -> None:
    given = relax.const(np.float32(1)), relax.const(np.uint8(3))
    same(answer_of(lambda x: op.quantize(x, *given, axis=0, out_dtype="uint8"), np.array([np.nan], np.float32)), [3])


@mends("network/operators/normalization.py")
def test_variances_of_numbers_far_from_zero() -> None:
    x = (10000 + np.arange(8, dtype=np.float32) % 2).reshape(1, 1, 8)
    scale = relax.const(np.ones(1, np.float32)), relax.const(np.zeros(1, np.float32))
    same(answer_of(lambda x: op.nn.instance_norm(x, *scale, 0, [2], 0.0), x).reshape(-1)[:2], [-1, 1])


@mends("network/operators/scatter.py")
def test_scatters_of_shorter_indices() -> None:
    x, at, new = np.zeros((3, 2, 2), np.float32), np.zeros((1, 2, 1), np.int64), np.ones((1, 2, 1), np.float32)
    right = x.copy()
    right[0, :, 0] = 1
    same(answer_of(lambda x, at, new: op.scatter_elements(x, at, new, 0), x, at, new), right)


@mends("network/operators/mean_pool.py")
def test_conditions_of_average_pools() -> None:
    mod = module(lambda x: op.nn.avg_pool2d(x, (1, 3), padding=(0, 1)), (ROW.shape, "float32"))
    assert "if_then_else" not in relax.transform.LegalizeOps()(mod).script()


@mends("network/operators/resize.py")
def test_coordinates_of_resizes() -> None:
    mod = relax.transform.LegalizeOps()(
        module(lambda x: op.image.resize2d(x, (2, 14), layout="NCHW", method="linear"), (ROW.shape, "float32"))
    )
    assert "T.floor" not in mod.script()


@mends("network/operators/free_moves.py")
def test_reshapes_of_free_extents() -> None:
    n = tirx.Var("n", "int64")
    mod = module(lambda x: op.reshape(x, (n * 4, 2)), ((n, 8), "float32"))
    mod = relax.transform.RewriteDataflowReshape()(
        relax.transform.LegalizeOps()(relax.transform.ConvertToDataflow(1)(mod))
    )
    assert "call_tir" not in mod.script()


# Passes


@mends("network/rewrite/widen_bf16.py")
def test_normalizations_of_bf16() -> None:
    scale = relax.const(np.ones(7, np.float32), "bfloat16")
    mod = module(lambda x: op.nn.layer_norm(x, scale, scale, [3]), (ROW.shape, "bfloat16"))
    takes("only support float32", lambda: tvm.compile(mod, "llvm"))


@mends("network/rewrite/simplify.py")
def test_slopes_of_bf16() -> None:
    slopes = relax.const(np.ones(1, np.float32), "bfloat16")
    takes("", lambda: tvm.compile(module(lambda x: op.nn.prelu(x, slopes), (ROW.shape, "bfloat16")), "llvm"))


@mends("network/report.py")
def test_attributes_of_few_bytes() -> None:
    mod = module(lambda x: op.abs(x), (X.shape, "float32")).with_attr("noted", "[]")
    takes("SmallStr", lambda: mod.get_attr("noted"))


# Arithmetic of indices


@mends("algorithms/quotients.py")
def test_quotients_of_what_falls() -> None:
    i = tirx.Var("i", "int32")
    quotient = tirx.floordiv(11 - tirx.floordiv(i, 20), 8)
    (made,) = sym.iter_map_simplify([quotient], {i: tvm.ir.Range(0, 320)})
    values = [
        [int(sym.Analyzer().simplify(substitute(each, {i: tirx.const(at, "int32")}))) for at in range(0, 320, 20)]
        for each in (made, quotient)
    ]
    assert values[0] == values[1]


@mends("algorithms/cuda/direct.py")
def test_sums_of_remainders() -> None:
    t = tirx.Var("t", "int32")
    index = tirx.floordiv(tirx.floormod(t, 6), 3) - tirx.floordiv(tirx.floormod(t, 3) - 1, 3)
    takes("Divide by zero", lambda: sym.iter_map_simplify([index], {t: tvm.ir.Range(0, 6)}))


@mends("network/lower.py")
def test_slices_of_free_extents_are_no_reshapes() -> None:
    s = tirx.Var("s", "int64")
    sliced = module(
        lambda x: op.strided_slice(x, [2], [s * 6 // 4], [s * 3], assume_inbound=True), ((8, 4, s * 6), "float32")
    )
    (function,) = (
        each for each in relax.transform.LegalizeOps()(sliced).functions.values() if isinstance(each, tirx.PrimFunc)
    )
    assert not takes("divisible", lambda: relax.analysis.has_reshape_pattern(function))


@mends("network/operators/free_sums.py")
def test_means_of_integers() -> None:
    mod = relax.transform.LegalizeOps()(module(lambda x: op.mean(x, 1), ((4, 2), "int32")))
    assert str(mod["mean"].params[-1].dtype) == "int32"


# What no test of TVM alone shows: it takes a kernel, or a network of free extents, whose build fails without.
WITHIN_BUILDS = {
    "algorithms/backprop.py",
    "algorithms/subconvolution.py",
    "algorithms/cpu/kn2row.py",
    "algorithms/terms.py",
    "lowering/cpu/rewrites/bf16_bits.py",
    "lowering/cpu/rewrites/squares.py",
    "network/emit/quotients.py",
    "network/ir/number_table.py",
    "network/kernels/build.py",
}


def test_each_file_that_names_the_version_is_registered() -> None:
    named = {
        path.relative_to(PACKAGE).as_posix()
        for path in [*PACKAGE.rglob("*.py"), *(PACKAGE / "schedules").rglob("*.py")]
        if _NAMED.search(path.read_text())
    }
    assert not REGISTER & WITHIN_BUILDS
    assert named == REGISTER | WITHIN_BUILDS
