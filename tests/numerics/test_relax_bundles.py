"""Networks that call the kernels of a bundle: right in a process of their own, and refused without the bundle they need."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
from onnx import helper, numpy_helper

import tvmconv.relax
from tvmconv import cli
from tvmconv.accuracy import relative_error
from tvmconv.errors import BundleError, TargetError, UnsupportedMachineError, VerificationError
from tvmconv.isa.machine import cpu_features
from tvmconv.network.kernels.bundled import bundled_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.runtime.bundle import read_bundle, write_manifest
from tvmconv.signature import parse_signature

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)
# Calls main by TVM alone, as docs/relax.md tells its users.
PLAIN = """
import json, pathlib, sys
sys.modules["torch"] = None  # tvm-ffi would import it
import numpy as np, tvm, tvm_ffi
from tvm import relax

folder = pathlib.Path(sys.argv[1])
bundle = folder / "kernels.bundle"
for entry in json.loads((bundle / "manifest.json").read_text())["entries"]:
    symbol = "tvmconv_packed" if entry["packed_filter"] else entry["symbol"]
    library = tvm_ffi.load_module(str(bundle / entry["file"]))
    tvm_ffi.register_global_func(f"{symbol}_{entry['sha256']}", library[symbol])
machine = relax.VirtualMachine(tvm.runtime.load_module(str(folder / "network.so")), tvm.cpu())
np.save(folder / "answer.npy", machine["main"](tvm.runtime.tensor(np.load(folder / "x.npy"))).numpy())
assert not {"tvmconv", "onnx"} & set(sys.modules)
"""


def network() -> onnx.ModelProto:
    """Return a convolution whose filter is packed, one of each channel by itself, a sum, and a product."""
    node, shapes = helper.make_node, {"w0": (16, 8, 3, 3), "w1": (16, 1, 3, 3), "w2": (16, 5), "w3": (16, 16, 1, 1)}
    nodes = [
        node("Conv", ["x", "w0"], ["c0"], pads=[1, 1, 1, 1]),
        node("Relu", ["c0"], ["r0"]),
        node("Conv", ["r0", "w1"], ["c1"], group=16, pads=[1, 1, 1, 1]),
        node("Conv", ["c1", "w3"], ["c3"]),
        node("Add", ["c3", "r0"], ["a"]),
        node("GlobalAveragePool", ["a"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("MatMul", ["f", "w2"], ["y"]),
    ]
    weights = [
        numpy_helper.from_array((RNG.standard_normal(shape) / 8).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    return model(nodes, [value("x", [1, 8, 12, 12])], weights=weights)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a model, a bundle of its convolutions, its network that calls them, an input and its answer."""
    folder = tmp_path_factory.mktemp("bundled")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder))
        source, bundle = save(network(), folder), str(folder / "kernels.bundle")
        assert cli.main(["build", source, "--data-format", "NXC", "--filter-format", "XIO", "-o", bundle]) == 0
        module = tvmconv.relax.use_kernels(read_onnx(source), bundle=bundle)
    (folder / "report.json").write_text(json.dumps([row.library for row in tvmconv.relax.report(module)]))
    tvmconv.relax.export(tvmconv.relax.compile_module(module), folder / "network.so")
    data = RNG.standard_normal((1, 8, 12, 12)).astype(np.float32)
    np.save(folder / "x.npy", data)
    np.save(folder / "expected.npy", ort.InferenceSession(source).run(None, {"x": data})[0])
    return folder


def test_a_network_calls_what_the_bundle_has_and_holds_the_rest(built: Path) -> None:
    entries = {entry.file: entry.packed_filter for entry in read_bundle(built / "kernels.bundle").entries}
    *called, product = json.loads((built / "report.json").read_text())
    assert set(called) == set(entries) and product == ""
    assert {packed is None for packed in entries.values()} == {True, False}


def test_tvm_alone_runs_it_in_another_process(built: Path) -> None:
    subprocess.run([sys.executable, "-I", "-c", PLAIN, str(built)], check=True, timeout=300)
    assert relative_error(np.load(built / "answer.npy"), np.load(built / "expected.npy")) < 2e-5


def test_it_is_right_with_its_bundle(built: Path) -> None:
    network = tvmconv.relax.load(built / "network.so", bundle=built / "kernels.bundle")
    (answer,) = network(x=np.load(built / "x.npy")).values()
    assert relative_error(answer, np.load(built / "expected.npy")) < 2e-5
    called = {each.name for each in network.operators({"x": np.load(built / "x.npy")}, 0.01) if each.ours}
    assert {entry.signature for entry in read_bundle(built / "kernels.bundle").entries} < called


def test_a_network_without_its_bundle_says_so(built: Path, tmp_path: Path) -> None:
    library, bundle = built / "network.so", tmp_path / "other.bundle"
    with pytest.raises(BundleError, match=r"calls 3 kernels of a bundle; say which: tvmconv run .*--bundle"):
        tvmconv.relax.load(library)
    with pytest.raises(BundleError, match="is not a bundle"):
        tvmconv.relax.load(library, bundle)
    shutil.copytree(built / "kernels.bundle", bundle)
    read = read_bundle(bundle)
    write_manifest(replace(read, entries=tuple(replace(entry, verified=False) for entry in read.entries)))
    with pytest.raises(VerificationError, match="found the kernel for conv2d"):
        tvmconv.relax.load(library, bundle)
    write_manifest(replace(read, entries=read.entries[1:]))
    with pytest.raises(BundleError, match=r"lacks 1 of the 3 kernels .* compile the network again"):
        tvmconv.relax.load(library, bundle)
    write_manifest(read)
    (bundle / read.entries[0].file).unlink()
    with pytest.raises(BundleError, match="No such file"):
        tvmconv.relax.load(library, bundle)


@pytest.mark.parametrize("part", [0.0, 0.001, 0.1, 0.5, 0.9])
def test_a_truncated_network_is_refused(part: float, built: Path, tmp_path: Path) -> None:
    content, library = (built / "network.so").read_bytes(), tmp_path / "network.so"
    library.write_bytes(content[: int(len(content) * part)])
    with pytest.raises(BundleError, match=r"network.so is no network.*(cut off|too short)"):
        tvmconv.relax.load(library, built / "kernels.bundle")


def test_kernels_that_the_network_may_not_call(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    module, bundle = read_onnx(str(built / "model.onnx")), tmp_path / "other.bundle"
    shutil.copytree(built / "kernels.bundle", bundle)
    read = read_bundle(bundle)

    def with_features(*more: str) -> None:
        targets = {name: replace(each, features=(*each.features, *more)) for name, each in read.targets.items()}
        write_manifest(replace(read, targets=targets))

    with_features("sse9")
    with pytest.raises(
        TargetError, match=r"has no kernel that a network for .* may call, it is for .*, which uses sse9"
    ):
        tvmconv.relax.use_kernels(module, bundle=bundle)
    write_manifest(replace(read, entries=tuple(replace(each, numerical_class="transform") for each in read.entries)))
    problems = [parse_signature(entry.signature) for entry in read.entries]
    assert len(bundled_kernels(problems, bundle, "host", "default")) == len(problems)
    assert bundled_kernels(problems, bundle, "host", "strict") == {}
    with_features("f16c")
    monkeypatch.setattr("tvmconv.network.kernels.bundled.missing_features", lambda features: ("f16c",))
    with pytest.raises(
        UnsupportedMachineError, match="this machine's CPU lacks f16c: compile the network on a machine"
    ):
        tvmconv.relax.use_kernels(module, bundle=bundle)


def test_a_network_for_another_cpu_is_refused(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = cpu_features() - {"avx2"}
    monkeypatch.setattr("tvmconv.isa.machine.cpu_features", lambda: fewer)
    with pytest.raises(UnsupportedMachineError, match="this machine's CPU lacks avx2"):
        tvmconv.relax.load(built / "network.so", built / "kernels.bundle")
