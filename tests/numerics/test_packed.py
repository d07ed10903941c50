"""Prepacked filters: the same answers, from one layout to many kernels, and none from a wrong one."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path

import numpy as np
import pytest
from test_compiler import HOST
from test_compiler import SPACES as ALL_SPACES
from toys import compile_bundle, run_python, small_problem

import tvmconv
from tvmconv import fills
from tvmconv.accuracy import difference
from tvmconv.errors import InputError
from tvmconv.lowering.common.entry_points import EntryPoints
from tvmconv.lowering.compiler import Choice, compile_problem
from tvmconv.signature import format_signature, parse_signature

SPACES = ALL_SPACES[::8]
WINOGRAD = [
    "conv2d-n1-i32x30x30-o32x30x30-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias",
    "conv2d-n1-i64x7x7-o64x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
]
WIDENED = "conv2d-n1-i20x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16"
# Its 540 KiB are on more pages than an L1 TLB reaches.
FAR = "conv2d-n1-i96x8x8-o160x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
NO_CHANNELS = format_signature(small_problem(in_channels=0, bias=True))
NO_IMAGES = format_signature(small_problem(batch=0))
# The filters that are read where they lie: lanes lie together in f32, or there is nothing to read.
IN_PLACE = [format_signature(small_problem(out_channels=16)), NO_CHANNELS]
OIX = small_problem(filter_format="OIX")
DATA_TYPES = ("f32", "f16", "bf16")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of every algorithm, layout and type."""
    winograd = [*map(parse_signature, WINOGRAD)]
    problems = [*map(parse_signature, [*SPACES, WIDENED, FAR, *IN_PLACE, NO_IMAGES])]
    problems += [small_problem(dtype, bias) for dtype in DATA_TYPES for bias in (False, True)]
    problems += [OIX, OIX.with_(batch=1), OIX.with_(filter_format="XIO"), OIX.with_(groups=1, in_channels=20)]
    return compile_bundle(
        tmp_path_factory.mktemp("packed") / "b", [*winograd, *dict.fromkeys(problems)], strict=problems, quick=True
    )


@pytest.fixture(scope="module")
def registry(bundle: Path) -> tvmconv.Registry:
    return tvmconv.load(bundle)


@pytest.mark.parametrize("threads", [None, 3])
def test_every_kernel_answers_alike(bundle: Path, threads: int | None) -> None:
    registry = tvmconv.load(bundle, threads=threads)
    for signature in registry:
        kernel = registry[signature]
        arrays, expected = fills.exact_case(kernel.problem)
        packed = kernel.pack(arrays.filter)
        assert kernel.pack(packed) is packed
        for given in (packed, pickle.loads(pickle.dumps(packed))):
            output = np.full_like(expected, np.nan)
            bias = () if arrays.bias is None else (arrays.bias,)
            assert kernel(arrays.data, given, *bias, out=output) is output
            assert not difference(output, expected, kernel.info.numerical_class, kernel.problem), signature


def test_info_tells_what_is_packed(registry: tvmconv.Registry) -> None:
    for signature in registry:
        kernel = registry[signature]
        packed = kernel.pack(fills.exact_fill(kernel.problem).filter)
        if kernel.info.packed_filter is None:
            assert packed.array.shape == kernel.problem.filter_shape
        else:
            described = {"layout": packed.layout, "dtype": packed.array.dtype.name, "bytes": packed.nbytes}
            assert kernel.info.packed_filter == described
            # What is computed with: f32, or pairs of bf16.
            assert packed.array.dtype in (np.float32, np.uint32)
    assert all(registry[signature].info.packed_filter is None for signature in IN_PLACE)
    assert registry.lookup(OIX).info.packed_filter is not None


def test_what_is_packed_ahead_alone(tmp_path: Path) -> None:
    """Read in place by a plain call: f16, widened by packing, and large filters. Transformed as it is used: Winograd's."""
    for signature, algorithm in ((WIDENED, "direct"), (FAR, "direct"), (WINOGRAD[1], "winograd4")):
        problem, choice = parse_signature(signature), Choice(algorithm)
        kernel = compile_problem(problem, HOST, tmp_path / f"{algorithm}.so", choice=choice)
        assert kernel.packed_filter is not None
        assert kernel.packed_filter["bytes"] >= 4 * prod(problem.filter_shape)
        tuned = compile_problem(problem, HOST, tmp_path / "tuned.so", choice=choice, entry_points=EntryPoints.PACKED)
        assert tuned.packed_filter == kernel.packed_filter
        # Less code: sections are filled up with zeros to whole pages.
        tuned_size, size = (np.count_nonzero(np.fromfile(tmp_path / f"{n}.so", np.uint8)) for n in ("tuned", algorithm))
        assert tuned_size < size


def test_a_packed_filter_is_a_copy(registry: tvmconv.Registry) -> None:
    for problem in (OIX, parse_signature(IN_PLACE[0])):
        kernel = registry.lookup(problem)
        (data, weights, _), expected = fills.exact_case(problem)
        given = weights.copy()
        packed = kernel.pack(given)
        given[...] = np.nan
        assert (kernel(data, packed) == expected).all()


@pytest.mark.parametrize("dtype", DATA_TYPES)
def test_torch(registry: tvmconv.Registry, dtype: str) -> None:
    torch = pytest.importorskip("torch")
    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    problem = small_problem(dtype)
    (data, weights, _), expected = fills.exact_case(problem)
    tensors = [torch.from_numpy(array.astype(np.float32)).to(kind) for array in (data, weights)]
    kernel = registry.lookup(problem)
    got = kernel(tensors[0], kernel.pack(tensors[1]))
    assert got.dtype == kind and (got.double().numpy() == expected.astype(np.float64)).all()
    assert (kernel(data, kernel.pack(tensors[1])) == expected).all()


def test_one_layout_serves_kernels_of_other_shapes(registry: tvmconv.Registry) -> None:
    weights = fills.exact_fill(OIX).filter
    packed = registry.lookup(OIX).pack(weights)
    single = registry.lookup(OIX.with_(batch=1))
    data = fills.exact_fill(OIX).data[:1]
    assert (single(data, packed) == single(data, weights)).all()


def test_a_wrong_layout_is_refused(registry: tvmconv.Registry) -> None:
    kernel = registry.lookup(OIX)
    data, weights, _ = fills.exact_fill(OIX)
    for other in (OIX.with_(filter_format="XIO"), OIX.with_(in_channels=20), small_problem("bf16"), *SPACES):
        foreign = registry[other if isinstance(other, str) else format_signature(other)]
        packed = foreign.pack(fills.exact_fill(foreign.problem).filter)
        if foreign.info.packed_filter == kernel.info.packed_filter:
            continue
        with pytest.raises(InputError, match=r"packed as .*; this kernel takes .*: pack it with this kernel's pack"):
            kernel(data, packed)
        with pytest.raises(InputError, match="this kernel takes"):
            kernel.pack(packed)
    packed = kernel.pack(weights)
    for array in (packed.array[:-16], packed.array.astype(np.float64), packed.array.reshape(-1, 16)):
        with pytest.raises(InputError, match="but its layout"):
            kernel(data, tvmconv.PackedFilter(packed.layout, array))
    with pytest.raises(InputError, match=r"filter has shape .*; this kernel takes"):
        kernel.pack(weights[:1])
    with pytest.raises(InputError, match="filter has type f16; this kernel takes f32"):
        kernel.pack(weights.astype(np.float16))


def test_a_packed_filter_travels_in_a_file(registry: tvmconv.Registry, tmp_path: Path) -> None:
    (data, weights, _), expected = fills.exact_case(OIX)
    kernel = registry.lookup(OIX)
    kernel.pack(weights).save(tmp_path / "weights")
    loaded = tvmconv.PackedFilter.load(tmp_path / "weights")
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]
    assert loaded.array.ctypes.data % 64 == 0 and (kernel(data, loaded) == expected).all()
    with pytest.raises(InputError, match="cannot read the packed filter"):
        tvmconv.PackedFilter.load(tmp_path / "none")
    content = (tmp_path / "weights").read_bytes()
    np.save(tmp_path / "other.npy", data)
    np.savez(tmp_path / "pickled.npz", layout=np.array("x"), array=np.array([object()]))
    for name, damaged in (("short", content[:-40]), ("empty", b""), ("text", b"weights")):
        (tmp_path / name).write_bytes(damaged)
    for name in ("short", "empty", "text", "other.npy", "pickled.npz"):
        with pytest.raises(InputError, match="is not a packed filter, or is damaged"):
            tvmconv.PackedFilter.load(tmp_path / name)


def test_many_threads_share_one_packed_filter(registry: tvmconv.Registry) -> None:
    kernel = registry.lookup(OIX)
    (data, weights, _), expected = fills.exact_case(OIX)
    packed = kernel.pack(weights)
    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(lambda _: (kernel(data, packed) == expected).all(), range(60)))
        assert all(pool.map(lambda _: (kernel.pack(weights).array == packed.array).all(), range(60)))


def test_libraries_with_shared_symbols_keep_to_their_own(bundle: Path) -> None:
    """Loaded for everybody to see, each library still calls its own functions of the names that all have."""
    script = """
import ctypes, tvm_ffi, numpy as np, tvmconv
from tvmconv import fills
ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi(), ctypes.RTLD_GLOBAL)
registry = tvmconv.load(sys.argv[1])
signatures = [s for s in registry if s.startswith("conv2d-n2-i19") and registry[s].info.packed_filter]
for signature in signatures:
    ctypes.CDLL(str(registry.bundles[0].library(registry[signature].info)), ctypes.RTLD_GLOBAL)
for signature in signatures:
    (data, weights, bias), expected = fills.exact_case(registry[signature].problem)
    assert (registry[signature](data, weights, bias) == expected).all(), signature
print(len(signatures))
"""
    assert int(run_python(script, bundle)) >= 4
