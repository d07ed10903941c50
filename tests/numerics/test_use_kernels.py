"""Modules of TVM's users with our kernels: `tvm.compile` and its virtual machine take them as they are, beside NumPy and PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import tvm
from near import assert_near
from relax_modules import relax_module
from tvm import relax

import tvmconv.relax
from tvmconv.errors import InputError, TargetError, TvmconvError
from tvmconv.targets.target import Target

torch = pytest.importorskip("torch")
op, nn = relax.op, relax.op.nn
Make = Callable[..., Any]


def numbers(*shape: int, seed: int = 1) -> np.ndarray:
    """Return small integers, with which sums are exact, in bf16 and f16, too."""
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float32)


def answers(module: tvm.IRModule, *arrays: np.ndarray) -> list[np.ndarray]:
    """Return what stock TVM computes."""
    machine = relax.VirtualMachine(tvm.compile(module, Target.parse("host").tvm()), tvm.cpu())
    found = machine["main"](*map(tvm.runtime.tensor, arrays))
    return [each.numpy() for each in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]


def compared(make: Make, right: Callable[..., Any], shapes: Sequence[Any], dtypes: Any = "float32") -> list[Any]:
    """Compare what stock TVM computes of a module with our kernels with PyTorch; return the report."""
    module = tvmconv.relax.use_kernels(relax_module(make, shapes, dtypes))
    assert "tvmconv." not in module.without_attr("tvmconv_report").script(show_meta=False)
    arrays = [numbers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    narrow = [each.astype(str(param.ty.dtype)) for each, param in zip(arrays, module["main"].params, strict=True)]
    for answer, expected in zip(answers(module, *narrow), right(*map(torch.from_numpy, arrays)), strict=True):
        assert_near(answer.astype(np.float32), expected.numpy(), summed=8 * 9, layers=2)
    return tvmconv.relax.report(module)


ACTIVATIONS = {
    "relu": (nn.relu, torch.relu),
    "gelu": (nn.gelu, torch.nn.functional.gelu),
    "tanh": (op.tanh, torch.tanh),
    "silu": (nn.silu, torch.nn.functional.silu),
    "sigmoid": (op.sigmoid, torch.sigmoid),
    "softplus": (nn.softplus, torch.nn.functional.softplus),
}


def test_every_activation_of_a_convolution_and_alone() -> None:
    filters = [numbers(8, 8, 3, 3, seed=seed) for seed in range(len(ACTIVATIONS))]

    def make(builder: Any, data: Any) -> Any:
        made = []
        for filter_, (ours, _) in zip(filters, ACTIVATIONS.values(), strict=True):
            made.append(builder.emit(ours(builder.emit(nn.conv2d(data, relax.const(filter_), padding=1)))))
            made.append(builder.emit(ours(builder.emit(op.permute_dims(data, [0, 1, 3, 2])))))
        return relax.Tuple(made)

    def right(data: Any) -> Any:
        for filter_, (_, theirs) in zip(filters, ACTIVATIONS.values(), strict=True):
            yield theirs(torch.conv2d(data, torch.from_numpy(filter_), padding=1))
            yield theirs(data.transpose(2, 3))

    rows = compared(make, right, [(1, 8, 9, 11)])
    assert [row.why for row in rows] == [""] * len(ACTIVATIONS)


@pytest.mark.parametrize("math", ["default", "strict"])
def test_kernels_of_every_kind(math: str) -> None:
    """Transforms, a filter in place, groups, a transposed one, sums in the epilogue, and a product with a prepacked matrix."""
    three, one, each = numbers(16, 16, 3, 3), numbers(16, 16, 1, 1, seed=2), numbers(16, 1, 3, 3, seed=3)
    back, matrix = numbers(16, 4, 2, 2, seed=4), numbers(20, 12, seed=5)

    def make(builder: Any, data: Any) -> Any:
        a = builder.emit(nn.relu(builder.emit(nn.conv2d(data, relax.const(three), padding=1))))
        b = builder.emit(nn.conv2d(data, relax.const(one)))
        c = builder.emit(nn.conv2d(builder.emit(op.add(a, b)), relax.const(each), padding=1, groups=16))
        d = builder.emit(nn.conv2d_transpose(c, relax.const(back), strides=2))
        return relax.Tuple([d, builder.emit(op.matmul(d, relax.const(matrix)))])

    def right(data: Any) -> Any:
        torch_three, torch_one, torch_each, torch_back, torch_matrix = map(
            torch.from_numpy, (three, one, each, back, matrix)
        )
        a = torch.relu(torch.conv2d(data, torch_three, padding=1)) + torch.conv2d(data, torch_one)
        d = torch.conv_transpose2d(torch.conv2d(a, torch_each, padding=1, groups=16), torch_back, stride=2)
        return d, d @ torch_matrix

    module = tvmconv.relax.use_kernels(relax_module(make, [(1, 16, 10, 10)]), math=math)
    data = numbers(1, 16, 10, 10)
    for answer, expected in zip(answers(module, data), right(torch.from_numpy(data)), strict=True):
        assert_near(answer, expected.numpy(), summed=(2 * 16 + 1) * 9 + 16, layers=4, numerical_class="transform")
    assert not any(row.why for row in tvmconv.relax.report(module))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_types(dtype: str) -> None:
    filter_ = numbers(8, 8, 3, 3)

    def make(builder: Any, data: Any) -> Any:
        narrow = builder.emit(op.astype(data, dtype))
        made = builder.emit(nn.conv2d(narrow, relax.const(filter_, dtype), padding=1))
        return builder.emit(op.astype(builder.emit(nn.relu(made)), "float32"))

    module, data = relax_module(make, [(1, 8, 7, 9)]), numbers(1, 8, 7, 9)
    for other in ("znver4", "neoverse-v1"):
        tvmconv.relax.use_kernels(module, other)  # functions of their instructions come along
    (answer,) = answers(tvmconv.relax.use_kernels(module, math="strict"), data)
    expected = torch.relu(torch.conv2d(torch.from_numpy(data), torch.from_numpy(filter_), padding=1))
    np.testing.assert_array_equal(answer, expected)


def test_products_of_data_and_an_if() -> None:
    def make(builder: Any, left: Any, right: Any) -> Any:
        return builder.emit(op.matmul(left, right))

    compared(make, lambda left, right: [left @ right], [(2, 7, 16), (2, 16, 24)])
    builder, filter_ = relax.BlockBuilder(), numbers(8, 4, 1, 1)
    data, asked = (
        relax.Var("x", relax.TensorType((1, 4, 5, 5), "float32")),
        relax.Var("c", relax.TensorType((), "bool")),
    )
    with builder.function("main", [data, asked]):
        made = [
            relax.SeqExpr([], each)
            for each in (nn.conv2d(data, relax.const(filter_)), nn.conv2d(data, relax.const(-filter_)))
        ]
        builder.emit_func_output(builder.emit(relax.If(asked, *made)))
    module = tvmconv.relax.use_kernels(builder.finalize())
    assert [row.why for row in tvmconv.relax.report(module)] == ["", ""]
    array = numbers(1, 4, 5, 5)
    right = torch.conv2d(torch.from_numpy(array), torch.from_numpy(filter_)).numpy()
    for choice, sign in ((True, 1), (False, -1)):
        (answer,) = answers(module, array, np.array(choice))
        np.testing.assert_array_equal(answer, sign * right)


def test_a_pass_among_others_leaves_to_tvm_what_no_kernel_covers() -> None:
    filter_ = numbers(8, 4, 3, 3)

    def make(builder: Any, data: Any, weights: Any) -> Any:
        return builder.emit(
            nn.conv2d_transpose(builder.emit(nn.conv2d(data, relax.const(filter_))), weights, strides=2)
        )

    passes = [relax.transform.CanonicalizeBindings(), tvmconv.relax.UseKernels("host"), relax.transform.LegalizeOps()]
    module = tvm.transform.Sequential(passes)(relax_module(make, [(1, 4, 8, 8), (8, 2, 2, 2)]))
    ours, theirs = sorted(tvmconv.relax.report(module), key=lambda row: row.why)
    assert ours.signature and "its filter is not fixed" in theirs.why
    data, weights = numbers(1, 4, 8, 8), numbers(8, 2, 2, 2)
    (answer,) = answers(module, data, weights)
    made = torch.conv2d(torch.from_numpy(data), torch.from_numpy(filter_))
    np.testing.assert_array_equal(answer, torch.conv_transpose2d(made, torch.from_numpy(weights), stride=2))


def test_functions_of_other_names_and_without_arguments() -> None:
    builder, weights = relax.BlockBuilder(), numbers(8, 4, 1, 1)
    with builder.function("ones", [], {"global_symbol": "ones"}):
        with builder.dataflow():
            made = builder.emit_output(op.ones((1, 8, 9, 7), "float32"))
        builder.emit_func_output(made)
    ones = builder.get().get_global_var("ones")
    data = relax.Var("x", relax.TensorType((1, 4, 9, 7), "float32"))
    with builder.function("forward", [data], {"global_symbol": "forward"}):
        with builder.dataflow():
            made = builder.emit(nn.conv2d(data, relax.const(weights)))
            made = builder.emit_output(op.add(made, builder.emit(relax.Call(ones, []))))
        builder.emit_func_output(made)
    module = tvmconv.relax.use_kernels(builder.get())
    assert [each.name.partition(".")[0] for each in tvmconv.relax.report(module)] == ["forward"]
    machine = relax.VirtualMachine(tvm.compile(module, Target.parse("host").tvm()), tvm.cpu())
    x = numbers(1, 4, 9, 7)
    answer = machine["forward"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(answer, np.einsum("oc,nchw->nohw", weights[..., 0, 0], x) + 1)


def test_convolutions_of_symbolic_shapes_are_left_to_tvm() -> None:
    weights, batch = numbers(8, 4, 1, 1), tvm.tirx.Var("n", "int64")
    given = relax_module(lambda builder, x: builder.emit(nn.conv2d(x, relax.const(weights))), [(batch, 4, 9, 7)])
    module = tvmconv.relax.use_kernels(given)
    (row,) = tvmconv.relax.report(module)
    assert (row.algorithm, row.why) == ("", "its shapes are not fixed")
    x = numbers(2, 4, 9, 7)
    (answer,) = answers(module, x)
    np.testing.assert_array_equal(answer, np.einsum("oc,nchw->nohw", weights[..., 0, 0], x))


def test_bad_arguments() -> None:
    with pytest.raises(TvmconvError, match="layout is 'NHWC'; allowed: NXC, NCX"):
        tvmconv.relax.UseKernels(layout="NHWC")
    with pytest.raises(TvmconvError, match="math is 'fast'"):
        tvmconv.relax.UseKernels(math="fast")
    with pytest.raises(TargetError, match="only compiled for CPUs"):
        tvmconv.relax.UseKernels("cuda:sm_90")
    with pytest.raises(TvmconvError, match="has no report; call use_kernels"):
        tvmconv.relax.report(tvm.IRModule({}))
    for take in (tvmconv.relax.report, tvmconv.relax.use_kernels):
        with pytest.raises(InputError, match=r"mod is a NoneType; give a tvm.IRModule"):
            take(None)


def test_kernels_that_need_what_tvms_runtime_has_not() -> None:
    filter_ = numbers(64, 64, 3, 3)
    module = relax_module(
        lambda builder, data: builder.emit(
            nn.conv2d(builder.emit(op.astype(data, "bfloat16")), relax.const(filter_, "bfloat16"), padding=1)
        ),
        [(1, 64, 16, 16)],
    )
    with pytest.raises(
        TargetError, match=r"for sapphirerapids call tvmconv_.*which TVM's runtime lacks; give a target without"
    ):
        tvmconv.relax.use_kernels(module, "sapphirerapids")
