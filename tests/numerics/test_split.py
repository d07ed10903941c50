"""Batches without a kernel of their own: served by calls for others, as the reference and the parts do it."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from models import model, save, value
from onnx import helper, numpy_helper
from toys import compile_bundle, small_problem

import tvmconv
from tvmconv import cli, fills, reference
from tvmconv.accuracy import difference
from tvmconv.building.filters import add_filters
from tvmconv.errors import BundleError, InputError, KernelNotFoundError
from tvmconv.frontends import read_model
from tvmconv.lowering.compiler import Choice
from tvmconv.problem import Problem
from tvmconv.runtime.kernel import Kernel
from tvmconv.runtime.packed import PackedFilters
from tvmconv.runtime.split_kernel import SplitKernel

ADDING = small_problem(bias=True, epilogue="add-relu", data_format="NCX", filter_format="OIX")
BF16 = small_problem("bf16", epilogue="add-relu")
DEEP = small_problem(in_channels=32, out_channels=32)
NO_CHANNELS = small_problem(in_channels=0, bias=True)
BATCHES = {ADDING: (4, 3), BF16: (2, 1), NO_CHANNELS: (1,)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a bundle of some batches, and one each for two more, whose kernels differ in the filter's layout."""
    folder = tmp_path_factory.mktemp("split")
    problems = [each.with_(batch=n) for each, batches in BATCHES.items() for n in batches]
    compile_bundle(folder / "b", problems, strict=problems, quick=True)
    for batch, algorithm in ((1, "direct"), (2, "winograd4")):
        compile_bundle(folder / algorithm, [DEEP.with_(batch=batch)], choice=Choice(algorithm))
    return folder


@pytest.fixture(scope="module", params=[None, 2], ids=["threads", "two threads"])
def registry(folder: Path, request: pytest.FixtureRequest) -> tvmconv.Registry:
    return tvmconv.load(*sorted(folder.iterdir()), threads=request.param, split_batch=True)


def by_hand(registry: tvmconv.Registry, problem: Problem, batches: list[int], arrays: fills.Arrays) -> np.ndarray:
    """Return what calls for some batches give, one after the other."""
    parts, begin = [], 0
    for batch in batches:
        images = slice(begin, begin + batch)
        given = {
            name: array[images] if name in ("data", "residual") else array for name, array in arrays.given().items()
        }
        parts.append(registry.lookup(problem.with_(batch=batch))(**given))
        begin += batch
    return np.concatenate(parts)


CASES = [
    (ADDING, [4, 4, 3]),
    (ADDING, [3, 3]),
    (BF16, [2, 2, 1]),
    (DEEP, [2, 2, 2, 2, 1]),
    (NO_CHANNELS, [1, 1, 1]),
]


@pytest.mark.parametrize(("problem", "batches"), CASES)
def test_equals_the_reference_and_the_parts(registry: tvmconv.Registry, problem: Problem, batches: list[int]) -> None:
    problem = problem.with_(batch=sum(batches))
    kernel = registry.lookup(problem)
    assert isinstance(kernel, SplitKernel) and kernel.problem == problem and problem not in registry
    arrays, expected = fills.exact_case(problem)
    given = arrays.given()
    output = kernel(**given)
    assert output.dtype == expected.dtype
    assert not difference(output, expected, kernel.info.numerical_class, problem)
    np.testing.assert_array_equal(output, by_hand(registry, problem, batches, arrays))
    packed = kernel.pack(arrays.filter)
    assert kernel.pack(packed) is packed
    for filter_ in (packed, pickle.loads(pickle.dumps(packed))):
        out = np.full_like(expected, np.nan)
        assert kernel(**{**given, "filter": filter_}, out=out) is out
        np.testing.assert_array_equal(out, output)


def test_nothing_is_copied(registry: tvmconv.Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = registry.lookup(ADDING.with_(batch=7))
    arrays, expected = fills.exact_case(kernel.problem)
    seen: list[tuple[int, ...]] = []
    run = Kernel._run

    def spy(self: Kernel, inputs: list[np.ndarray], output: np.ndarray, packed: object, openmp: bool) -> None:
        seen.append(tuple(array.ctypes.data for array in (*inputs, output)))
        run(self, inputs, output, packed, openmp)  # type: ignore[arg-type]

    monkeypatch.setattr(Kernel, "_run", spy)
    out = np.empty_like(expected)
    given = arrays.given()
    kernel(**given, out=out)
    second = {**given, "data": arrays.data[4:], "residual": arrays.residual[4:]}
    assert seen == [tuple(a.ctypes.data for a in (*each.values(), o)) for each, o in ((given, out), (second, out[4:]))]


def test_info_is_of_all_parts(registry: tvmconv.Registry) -> None:
    kernel = registry.lookup(DEEP.with_(batch=9))
    assert str(kernel.split) == "4 x 2 + 1"
    assert kernel.info.algorithm == "winograd4 and direct" and kernel.info.numerical_class == "transform"
    assert [each.problem.batch for each in kernel.kernels] == [2, 1]
    assert repr(kernel).startswith("<tvmconv.SplitKernel conv2d-n9-") and "4 x 2 + 1" in repr(kernel)
    assert registry.lookup(ADDING.with_(batch=7)).info.numerical_class == "exact"


def test_a_filter_packed_for_several_layouts_serves_each(registry: tvmconv.Registry) -> None:
    kernel = registry.lookup(DEEP.with_(batch=3))
    arrays = fills.exact_fill(DEEP.with_(batch=3))
    packed = kernel.pack(arrays.filter)
    assert isinstance(packed, PackedFilters) and len(packed.layouts) == 2
    assert kernel.filter_layout == " and ".join(packed.layouts) and packed.layouts[0] in repr(packed)
    assert packed.nbytes == sum(packed.of(layout).nbytes for layout in packed.layouts)
    for batch in (1, 2, 4):
        part = registry.lookup(DEEP.with_(batch=batch))
        data = fills.exact_fill(part.problem).data
        np.testing.assert_array_equal(part(data, packed), part(data, arrays.filter))
    (single,) = (packed.of(layout) for layout in packed.layouts[1:])
    with pytest.raises(InputError, match=r"packed as .*; this kernel takes .*: pack it with this kernel's pack"):
        kernel(arrays.data, single)
    with pytest.raises(InputError, match=r"packed as .* and .*; this kernel takes"):
        registry.lookup(BF16.with_(batch=2)).pack(packed)


def test_nothing_to_compute(registry: tvmconv.Registry) -> None:
    problem = ADDING.with_(batch=0)
    kernel = registry.lookup(problem)
    arrays, expected = fills.exact_case(problem)
    assert str(kernel.split) == "no call"
    for filter_ in (arrays.filter, kernel.pack(arrays.filter)):
        assert kernel(**{**arrays.given(), "filter": filter_}).shape == expected.shape
    with pytest.raises(InputError, match="filter has shape"):
        kernel(**{**arrays.given(), "filter": arrays.filter[1:]})


def test_every_kind_of_array(registry: tvmconv.Registry) -> None:
    problem = BF16.with_(batch=5)
    arrays, expected = fills.exact_case(problem)
    torch = pytest.importorskip("torch")
    tensors = {
        name: torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16) for name, array in arrays.given().items()
    }
    output = registry.lookup(problem)(**tensors)
    assert output.dtype == torch.bfloat16 and (output.double().numpy() == expected.astype(np.float64)).all()
    problem = ADDING.with_(batch=6)
    arrays, expected = fills.exact_case(problem)
    output = registry.lookup(problem)(**{n: tvm_ffi.from_dlpack(array) for n, array in arrays.given().items()})
    np.testing.assert_array_equal(np.from_dlpack(output), expected)
    # Not C-contiguous, and read-only.
    data = np.flip(np.flip(arrays.data, 0).copy(), 0)
    residual = arrays.residual.copy()
    residual.flags.writeable = False
    given = {**arrays.given(), "data": data, "residual": residual}
    np.testing.assert_array_equal(registry.lookup(problem)(**given), expected)


def test_calls_by_attributes(registry: tvmconv.Registry) -> None:
    problem = DEEP.with_(batch=5)
    data, filter_, _ = fills.exact_fill(problem)
    attributes = {"strides": (1, 1), "dilations": (1, 1), "auto_pad": "same_upper"}
    expected = registry.lookup(problem)(data, filter_)
    for _ in range(2):  # resolved, then remembered
        np.testing.assert_array_equal(registry.convolution(data, filter_, **attributes), expected)
    with pytest.raises(
        KernelNotFoundError, match=r"the nearest is .*, where .*in_spatial is \[9, 7\] instead of \[8, 7\]"
    ):
        registry.convolution(data[:, 1:], filter_, **attributes)


def test_bad_arrays(registry: tvmconv.Registry) -> None:
    kernel = registry.lookup(ADDING.with_(batch=7))
    arrays, expected = fills.exact_case(kernel.problem)
    given = arrays.given()
    whole = np.zeros((9, *kernel.problem.data_shape[1:]), np.float32)
    same = small_problem(in_channels=32, out_channels=32, batch=3)
    cases = [
        ({"data": arrays.data[:4]}, "data has shape .* this kernel takes"),
        ({"residual": arrays.residual[:4]}, "residual has shape"),
        ({"residual": None}, "residual is missing; the kernel takes one: conv2d-n7-"),
        ({"scale": np.ones(21, np.float32)}, "scale was given, but the kernel takes none"),
        ({"bias": arrays.bias[1:]}, "bias has shape"),
        ({"filter": arrays.filter.astype(np.float16)}, "filter has type f16"),
        ({"out": np.empty_like(expected)[:4]}, "out has shape"),
        ({"out": np.empty((14, *expected.shape[1:]), np.float32)[::2]}, "out must be C-contiguous"),
        ({"out": given["residual"]}, "out shares memory with an input"),
    ]
    for change, message in cases:
        with pytest.raises(InputError, match=message):
            kernel(**{**given, **change})
    # The first part's output beside its own data, on a later part's.
    whole = np.zeros((5, *same.data_shape[1:]), np.float32)
    with pytest.raises(InputError, match="out shares memory with an input"):
        registry.lookup(same)(whole[:3], fills.exact_fill(same).filter, out=whole[2:])
    with pytest.raises(InputError, match="filter is packed as"):
        kernel(**{**given, "filter": registry.lookup(same).pack(fills.exact_fill(same).filter)})


def test_kernels_are_checked_before_their_first_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from tvmconv.runtime import registry as module

    bundle = module.read_bundle(folder / "b")
    unknown = replace(bundle, entries=tuple(replace(entry, verified=None) for entry in bundle.entries))
    checked: list[str] = []
    monkeypatch.setattr(module, "check_before_use", lambda bundle, entry: checked.append(entry.signature))
    opened = tvmconv.Registry([unknown], verify="first-use", split_batch=True)
    kernel = opened.lookup(ADDING.with_(batch=7))
    assert kernel.info.verified is None and not checked
    kernel(**fills.exact_fill(kernel.problem).given())
    assert len(checked) == 2 and all("-n7-" not in signature for signature in checked)


def residual_model(seed: int = 0) -> onnx.ModelProto:
    """Return a model of a convolution whose sum with another tensor is bounded below."""
    rng = np.random.default_rng(seed)
    taps, bias = rng.integers(-4, 5, (16, 16, 3, 3)), rng.integers(-4, 5, 16)
    weights = [numpy_helper.from_array(array.astype(np.float32), name) for array, name in ((taps, "w"), (bias, "b"))]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1] * 4),
        helper.make_node("Add", ["c", "other"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    return model(nodes, [value("x", ("N", 16, 9, 7)), value("other", ("N", 16, 9, 7))], weights=weights)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return a model, and the bundle that one command makes of it at two batches, its filter in it."""
    folder = tmp_path_factory.mktemp("nodes")
    source, bundle = save(residual_model(), folder), folder / "b"
    command = ["build", source, "--batch", "4", "--batch", "3", "-o", str(bundle), "--with-filters", "--jobs", "1"]
    assert cli.main([*command, "--math", "strict"]) == 0
    return source, bundle


def test_nodes(built: tuple[str, Path]) -> None:
    registry = tvmconv.load(built[1], split_batch=True)
    assert sorted(registry[signature].problem.batch for signature in registry) == [3, 4]
    node = registry.node("conv")
    (constants, *_) = (each.constants() for each in read_model(built[0], batch=3, with_constants=True).nodes)
    for batch in (3, 6, 7, 8, 11, 0):
        problem = node.problems[0].with_(batch=batch)
        arrays = fills.exact_fill(problem)
        given = {**arrays.given(), "filter": constants.filter, "bias": constants.bias}
        expected = reference.compute(problem, **given)
        output = node(arrays.data, residual=arrays.residual)
        np.testing.assert_array_equal(output, expected)
        out = np.full_like(output, np.nan)
        assert node(arrays.data, out, arrays.residual) is out
        np.testing.assert_array_equal(out, expected)
    with pytest.raises(
        InputError, match=r"shape \[5, 16, 9, 7\] .*: these batches do not add up to 5: build it for that"
    ):
        node(np.zeros((5, 16, 9, 7), np.float32), residual=np.zeros((5, 16, 9, 7), np.float32))
    with pytest.raises(InputError, match=r"shape \[7, 16, 9, 8\] .*: build it for that"):
        node(np.zeros((7, 16, 9, 8), np.float32), residual=np.zeros((7, 16, 9, 8), np.float32))
    with pytest.raises(InputError, match=r"shape \[\] .*: build it for that"):
        node(np.zeros((), np.float32), residual=np.zeros((), np.float32))
    whole = tvmconv.load(built[1]).node("conv")
    with pytest.raises(InputError, match=r"shape \[7, 16, 9, 7\] .*: build it for that"):
        whole(np.zeros((7, 16, 9, 7), np.float32), residual=np.zeros((7, 16, 9, 7), np.float32))


def test_a_node_of_two_models_is_not_mixed(built: tuple[str, Path], tmp_path: Path) -> None:
    bundle = tmp_path / "b"
    shutil.copytree(built[1], bundle)
    source = save(residual_model(seed=1), tmp_path)
    add_filters(bundle, [read_model(source, batch=3, with_constants=True)])
    node = tvmconv.load(bundle, split_batch=True).node("conv")
    data = np.zeros((7, 16, 9, 7), np.float32)
    assert node(data[:3], residual=data[:3]).shape == (3, 16, 9, 7)
    with pytest.raises(
        BundleError, match=r"has another filter or bias for conv2d-n3-.* than for conv2d-n4-.*of one model"
    ):
        node(data, residual=data)
