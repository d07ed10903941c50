"""A network as one library: its file, its plan, and calls by several threads, at any address, from modules of any form."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels import host_without_tiles
from near import assert_near

tvm = pytest.importorskip("tvm")
from relax_modules import relax_module  # noqa: E402
from tvm import relax  # noqa: E402

from tvmconv import cli  # noqa: E402
from tvmconv.errors import BundleError, InputError, SourceError, TvmconvError, UnsupportedMachineError  # noqa: E402
from tvmconv.network.compile import build  # noqa: E402
from tvmconv.runtime.networks.file import read_file  # noqa: E402
from tvmconv.runtime.networks.library import NativeLibrary  # noqa: E402
from tvmconv.runtime.networks.network import Network, load_network  # noqa: E402

RNG = np.random.default_rng(0)
SHAPE = (1, 8, 9, 7)
Make = Callable[..., Any]


def module(make: Make, shapes: Sequence[Any] = (SHAPE,), dtype: str = "float32") -> tvm.IRModule:
    """Return a module whose `main` applies `make` to inputs `x0`, `x1` and so on."""
    return relax_module(make, shapes, dtype)


def convolved(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return a convolution with a filter of 3x3, and 8 outputs."""
    filter_ = np.random.default_rng(1).integers(-2, 3, (8, 8, 3, 3)).astype(np.float32)
    return builder.emit(relax.op.nn.conv2d(data, relax.const(filter_), padding=(1, 1)))


def two_layers(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return two convolutions, a softmax of their sum."""
    first = builder.emit(relax.op.nn.relu(convolved(builder, data)))
    return builder.emit(relax.op.nn.softmax(builder.emit(relax.op.add(convolved(builder, first), first)), 1))


def machine(made: tvm.IRModule, *arrays: Any) -> list[np.ndarray]:
    """Return what TVM's virtual machine computes, by TVM's operators alone."""
    executable = relax.build(made, "llvm")
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](*map(tvm.runtime.tensor, arrays))
    return [each.numpy() for each in (found if not isinstance(found, tvm.runtime.Tensor) else [found])]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("network") / "network.so"
    build(module(two_layers), path, math="strict")
    return path


def data() -> np.ndarray:
    return RNG.integers(-4, 5, SHAPE).astype(np.float32)


def test_its_answers_are_those_of_the_virtual_machine(library: Path) -> None:
    given = data()
    (answer,) = load_network(library)(x0=given).values()
    assert_near(answer, machine(module(two_layers), given)[0], summed=8, layers=2)


def test_inputs_and_outputs_at_any_address(library: Path) -> None:
    network, given = load_network(library), data()
    (right,) = network(x0=given).values()
    for start in (4, 20):
        memory, written = (np.zeros(given.nbytes + 128, np.uint8) for _ in range(2))
        shifted, out = (
            each[start : start + given.nbytes].view(np.float32).reshape(SHAPE) for each in (memory, written)
        )
        shifted[...] = given
        network.run([shifted.ctypes.data], [out.ctypes.data])
        np.testing.assert_array_equal(out, right)
        assert not written[:start].any() and not written[start + given.nbytes :].any()


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_calls_of_several_threads(library: Path, threads: int) -> None:
    network, arrays = load_network(library), [data() for _ in range(6)]
    right = [next(iter(network(x0=each).values())) for each in arrays]
    found: list[Any] = [None] * len(arrays)

    def compute(number: int) -> None:
        for _ in range(20):
            out = np.empty(SHAPE, np.float32)
            network.run([arrays[number].ctypes.data], [out.ctypes.data], threads)
            found[number] = out

    running = [threading.Thread(target=compute, args=[number]) for number in range(len(arrays))]
    for each in running:
        each.start()
    for each in running:
        each.join()
    for got, want in zip(found, right, strict=True):
        np.testing.assert_array_equal(got, want)


def given_back(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return the input, a value twice, a view of it, a constant, and a part of a split."""
    value = convolved(builder, data)
    parts = builder.emit(relax.op.split(value, 2, 1))
    flat = builder.emit(relax.op.reshape(value, (1, 504)))
    constant = relax.const(np.arange(6, dtype=np.float32))
    return relax.Tuple([data, value, value, flat, constant, builder.emit(relax.TupleGetItem(parts, 1))])


def test_outputs_that_are_no_value_of_their_own(tmp_path: Path) -> None:
    given, made = data(), module(given_back)
    build(made, tmp_path / "network.so", math="strict")
    answers = [*load_network(tmp_path / "network.so")(x0=given).values()]
    for answer, right in zip(answers, machine(made, given), strict=True):
        np.testing.assert_array_equal(answer, right)


def test_a_network_that_computes_nothing(tmp_path: Path) -> None:
    build(module(lambda builder, data: builder.emit(relax.op.reshape(data, (7, 72)))), tmp_path / "network.so")
    given = data()
    (answer,) = load_network(tmp_path / "network.so")(x0=given).values()
    np.testing.assert_array_equal(answer, given.reshape(7, 72))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int64", "int8", "uint8", "bool"])
def test_types_of_inputs(dtype: str, tmp_path: Path) -> None:
    made = module(lambda builder, data: builder.emit(relax.op.permute_dims(data, (0, 2, 3, 1))), dtype=dtype)
    build(made, tmp_path / "network.so", layout="NCX")
    given = RNG.integers(0, 2 if dtype == "bool" else 100, SHAPE).astype(dtype)
    (answer,) = load_network(tmp_path / "network.so")(x0=given).values()
    assert answer.dtype == given.dtype
    np.testing.assert_array_equal(answer, given.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int32", "int64"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_sorts(dtype: str, axis: int, tmp_path: Path) -> None:
    def make(builder: relax.BlockBuilder, data: Any) -> Any:
        first = builder.emit(relax.op.topk(data, 2, axis, "both", True, "int32"))
        found = [
            builder.emit(relax.op.argsort(data, axis, False, "int64")),
            builder.emit(relax.op.sort(data, axis, True)),
        ]
        return relax.Tuple([*found, *(builder.emit(relax.TupleGetItem(first, number)) for number in (0, 1))])

    build(module(make, [(3, 17, 5)], dtype), tmp_path / "network.so", layout="NCX")
    given = RNG.integers(-4, 5, (3, 17, 5)).astype(dtype)
    up, down = (np.argsort(sign * given.astype(np.float64), axis, "stable") for sign in (1, -1))
    first = np.take(down, [0, 1], axis)
    right = [up, np.take_along_axis(given, down, axis), np.take_along_axis(given, first, axis), first]
    for answer, each in zip(load_network(tmp_path / "network.so")(x0=given).values(), right, strict=True):
        np.testing.assert_array_equal(answer, each)


@pytest.mark.parametrize("parts", [(64, 32, 32), (3, 5, 40), (1, 1), (58, 58), (16, *[8] * 20), (100, 7)])
@pytest.mark.parametrize("pads", [False, True])
def test_joined_channels_and_what_follows(parts: tuple[int, ...], pads: bool, tmp_path: Path) -> None:
    channels = sum(parts)
    factor, shift = (RNG.integers(-3, 4, channels).astype(np.float32) for _ in range(2))

    def make(builder: relax.BlockBuilder, *given: Any) -> Any:
        value = builder.emit(relax.op.multiply(builder.emit(relax.op.concat([*given], -1)), relax.const(factor)))
        value = builder.emit(relax.op.nn.relu(builder.emit(relax.op.add(value, relax.const(shift)))))
        return builder.emit(relax.op.nn.pad(value, (0, 0, 1, 2, 0, 1, 0, 0))) if pads else value

    build(module(make, [(1, 5, 6, part) for part in parts]), tmp_path / "network.so", layout="NCX")
    arrays = {f"x{at}": RNG.integers(-4, 5, (1, 5, 6, part)).astype(np.float32) for at, part in enumerate(parts)}
    right = np.maximum(np.concatenate([*arrays.values()], -1) * factor + shift, 0)
    right = np.pad(right, ((0, 0), (1, 2), (0, 1), (0, 0))) if pads else right
    (answer,) = load_network(tmp_path / "network.so")(**arrays).values()
    np.testing.assert_array_equal(answer, right)


def test_times_of_all_operators(library: Path) -> None:
    network = load_network(library)
    operators = network.operators(network.random_inputs(), 0.01)
    assert sum(each.calls for each in operators) == len(network.description["steps"])
    assert sum(each.ours for each in operators) == 2 and all(each.seconds > 0 and each.bytes > 0 for each in operators)


def test_it_needs_no_compiler(library: Path) -> None:
    program = f"""
import sys
for name in ("tvm", "torch", "onnx"):
    sys.modules[name] = None
from tvmconv.runtime.networks.network import load_network
network = load_network({str(library)!r})
network(**network.random_inputs())
# The first imports PyTorch where it is installed; the second much that a network needs not.
assert not {{"tvm_ffi", "tvmconv.runtime.bundle"}} & {{*sys.modules}}
import tvm_ffi
assert tvm_ffi.load_module({str(library)!r}).implements_function("tvmconv_network")
network(**network.random_inputs())
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_errors_of_its_functions_have_their_classes(library: Path) -> None:
    functions = NativeLibrary(library)
    with pytest.raises(ValueError, match="another number of inputs and outputs than the network"):
        functions["tvmconv_network"](0, 0)
    with pytest.raises(ValueError, match="the first argument must be the number of threads"):
        functions["tvmconv_network_with_threads"](0)
    with pytest.raises(AttributeError):
        functions["tvmconv_other"]


def test_wrong_inputs_are_named(library: Path) -> None:
    network = load_network(library)
    with pytest.raises(InputError, match=r"x0 \(1x8x9x6 float32\) was given; the network takes x0 \(1x8x9x7 float32\)"):
        network(x0=np.zeros((1, 8, 9, 6), np.float32))
    with pytest.raises(InputError, match=r"x0 .* float64.* was given"):
        network(x0=np.zeros(SHAPE))
    with pytest.raises(InputError, match="y was given; the network takes x0"):
        network(y=data())


@pytest.mark.parametrize("lost", [1, 64, 5000])
def test_a_file_that_is_cut_off(library: Path, tmp_path: Path, lost: int) -> None:
    damaged = tmp_path / "network.so"
    damaged.write_bytes(library.read_bytes()[:-lost])
    with pytest.raises(BundleError, match=r"is cut off: its end is missing|no network"):
        load_network(damaged)


@pytest.mark.parametrize("at", [-80, -72, -64, -56])
def test_an_end_of_nonsense(library: Path, tmp_path: Path, at: int) -> None:
    content = bytearray(library.read_bytes())
    content[at : at + 8] = b"\xff" * 8
    damaged = tmp_path / "network.so"
    damaged.write_bytes(content)
    with pytest.raises(BundleError, match=r"cut off|no network"):
        load_network(damaged)


def test_weights_begin_with_a_page_of_any_machine(library: Path) -> None:
    assert read_file(library).weights % 65536 == 0


def test_children_of_a_process_whose_threads_call(library: Path) -> None:
    """A process of its own: TVM's threads are not there."""
    program = f"""
import os, signal, threading
import numpy as np
from tvmconv.runtime.networks.network import load_network
network, ended = load_network({str(library)!r}), threading.Event()
given = network.random_inputs()
(right,) = network(**given).values()
def loop():
    while not ended.is_set():
        network(**given)
threads = [threading.Thread(target=loop) for _ in range(3)]
for each in threads:
    each.start()
failed = 0
for _ in range(100):
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        (answer,) = network(**given).values()
        os._exit(not np.array_equal(answer, right))
    failed += os.waitpid(child, 0)[1] != 0
ended.set()
assert not failed, failed
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_bytes_that_are_others(library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", str(library)]) == 0
    assert "match their checksum" in capsys.readouterr().out
    file, content = read_file(library), library.read_bytes()
    code, name = file.weights // 2, content.rindex(b'"x0"') + 1
    for at in (code, file.weights, file.weights + 40, file.weights + file.weight_bytes - 1, name):
        damaged = tmp_path / "network.so"
        damaged.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(BundleError, match="its code, weights or description do not match"):
            read_file(damaged).verify()
        assert cli.main(["verify", str(damaged)]) != 0
        assert "is damaged" in capsys.readouterr().err


def test_verify_says_what_is_cut_off(library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "network.so"
    cut.write_bytes(library.read_bytes()[:-100])
    assert cli.main(["verify", str(cut)]) != 0
    assert "is cut off" in capsys.readouterr().err


def enlarged_by_transforms(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return convolutions that Winograd computes best, whose filters it enlarges."""
    filter_ = RNG.standard_normal((128, 128, 3, 3)).astype(np.float32)
    for _ in range(2):
        data = builder.emit(relax.op.nn.conv2d(data, relax.const(filter_), padding=(1, 1)))
    return data


def test_small_memory_repeats_no_weights(tmp_path: Path) -> None:
    shape, paths = (1, 128, 28, 28), {}
    given = RNG.standard_normal(shape).astype(np.float32)
    made = module(enlarged_by_transforms, [shape])
    for memory in ("default", "small"):
        paths[memory] = tmp_path / f"{memory}.so"
        build(made, paths[memory], memory=memory, target=host_without_tiles().name)
    footprints = {memory: read_file(path).footprint for memory, path in paths.items()}
    assert footprints["default"].model == footprints["small"].model == 4 * 128 * 128 * 9  # the filter, once
    assert footprints["small"].weights < 1.01 * footprints["small"].model
    assert footprints["default"].weights > 1.5 * footprints["default"].model
    for each in footprints.values():
        assert each.peak == each.weights + each.activations + 2 * given.nbytes
    small, default = (next(iter(load_network(path)(x0=given).values())) for path in paths.values())
    assert_near(small, default, summed=2 * 128 * 9, layers=2, numerical_class="transform")
    with pytest.raises(TvmconvError, match="memory is 'tiny'; allowed: default, small"):
        build(made, tmp_path / "tiny.so", memory="tiny")


def test_what_is_no_network(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"there is no file .*; write it with: tvmconv compile"):
        load_network(tmp_path / "network.so")
    with pytest.raises(BundleError, match="is a folder"):
        load_network(tmp_path)
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(BundleError, match="no network that tvmconv compile wrote"):
        load_network(tmp_path / "text.so")


def test_a_network_of_the_former_format_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    former = tmp_path / "former.so"
    former.write_bytes(b"\x7fELF" + bytes(1000) + b"tvmconv_describe\0" + bytes(1000))
    with pytest.raises(
        BundleError, match=r"TVM's virtual machine .* compile the model again: tvmconv compile MODEL.onnx -o"
    ):
        load_network(former)
    assert cli.main(["run", str(former)]) == 2
    assert "compile the model again" in capsys.readouterr().err


def test_features_that_this_machine_lacks(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmconv.isa.machine.missing_features", lambda features: ("amx_tile",))
    with pytest.raises(UnsupportedMachineError, match="this machine's CPU lacks amx_tile"):
        load_network(library)


def test_shapes_that_are_not_fixed(tmp_path: Path) -> None:
    size = tvm.tirx.Var("n", "int64")
    with pytest.raises(SourceError, match="x0 of the network has no fixed shape"):
        build(module(lambda builder, data: builder.emit(relax.op.nn.relu(data)), [(size, 4)]), tmp_path / "network.so")
    assert not list(tmp_path.iterdir())


def test_run_shows_what_a_network_gives(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", str(library)]) == 0
    assert "output0  1x8x9x7" in capsys.readouterr().out


def test_networks_are_freed(library: Path) -> None:
    def resident() -> int:
        pages = Path("/proc/self/statm").read_text().split()[1]
        return int(pages) * 4096

    def use() -> None:
        network: Network = load_network(library)
        network(x0=data())

    for _ in range(20):
        use()
    before = resident()
    for _ in range(100):
        use()
    assert resident() - before < 8 << 20
