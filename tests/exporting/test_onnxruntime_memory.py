"""Memory of a provider's session, and sessions without enough of it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
from models import model, save, value
from onnx import helper, numpy_helper
from toys import compile_bundle

from tvmconv.exporting.provider_library import export_provider
from tvmconv.frontends import read_source
from tvmconv.network.compile import export_part
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.onnxruntime.racing import graph_of

DROPPED = """
import ctypes, gc, sys
import onnxruntime as ort
import tvmconv.onnxruntime
model, provider = sys.argv[1:]
def kilobytes():
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith("Anonymous:"))
options = ort.SessionOptions()
options.log_severity_level = 3
name = tvmconv.onnxruntime.register(provider)
options.add_provider_for_devices([each for each in ort.get_ep_devices() if each.ep_name == name][:1], {})
before = kilobytes()
session = ort.InferenceSession(model, options)
print(kilobytes() - before)
"""


def test_initializers_are_dropped(tmp_path: Path):
    """A session keeps one copy of filters, as its kernels read them."""
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1, 1, 1, 1]) for i in range(8)]
    filters = [
        numpy_helper.from_array(rng.standard_normal((192, 192, 3, 3), dtype=np.float32), f"w{i}") for i in range(8)
    ]
    path = save(model(nodes, [value("x0", (1, 192, 3, 3))], [value("x8", None)], filters), tmp_path)
    problems = read_source(path)[:1]
    library = export_provider(
        compile_bundle(tmp_path / "b.bundle", problems, strict=problems, quick=True), tmp_path / "b.so"
    )
    weights = 8 * 192 * 192 * 9 * 4 / 1024
    command = [sys.executable, "-c", DROPPED, path, str(library)]
    kept = int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout)
    assert 0.9 * weights < kept < 1.5 * weights


SHARED = """
import sys
import numpy as np, onnxruntime as ort
import tvmconv.onnxruntime
model, provider, most = sys.argv[1:]
arena = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
ort.create_and_register_allocator(arena, ort.OrtArenaCfg({"max_mem": int(most)}))
options = ort.SessionOptions()
options.log_severity_level = 4
options.add_session_config_entry("session.use_env_allocators", "1")
session = tvmconv.onnxruntime.session(model, provider, options=options, claims="network")
try:
    session.run(None, {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()})
    print("ran")
except Exception as error:
    print(error)
"""


def test_activations_lie_in_the_sessions_arena(tmp_path: Path):
    """Of one that sessions share, and whose memory is limited."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), helper.make_node("Conv", ["c", "v"], ["y"])]
    filters = [
        numpy_helper.from_array(np.ones(shape, np.float32), n)
        for n, shape in (("w", (64, 1, 1, 1)), ("v", (1, 64, 1, 1)))
    ]
    path = save(model(nodes, [value("x", (1, 1, 96, 96))], [value("y", None)], filters), tmp_path)
    graph = graph_of(path, export_provider(None, tmp_path / "graphs.so"))
    networks = {graph: [export_part(use_kernels(read_onnx(path), math="strict"))]}
    library = export_provider(None, tmp_path / "p.so", networks=networks)
    for most, said in ((1 << 20, "Available memory of"), (1 << 26, "ran")):
        command = [sys.executable, "-c", SHARED, path, str(library), str(most)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert said in done.stdout


SCARCE = """
import ctypes, sys
import numpy as np, onnxruntime as ort
import tvmconv.onnxruntime
model, provider, scarce = sys.argv[1:]
shim = ctypes.CDLL(scarce)
ort.set_default_logger_severity(4)
def asked():
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return tvmconv.onnxruntime.session(model, provider, options=options, claims="network")
feeds = {"x": np.ones((2, 8), np.float32)}
right = asked().run(None, feeds)[0]
number, refusals = 0, 0
while True:
    shim.fail_at(number)
    try:
        session = asked()
    except Exception as error:
        session = None
        assert "memory" in str(error), (number, error)
    failed = shim.has_failed()
    shim.fail_at(-1)
    if session is not None:
        np.testing.assert_array_equal(session.run(None, feeds)[0], right)
    if not failed:
        break
    number, refusals = number + 1, refusals + (session is None)
print(number, refusals)
"""


def test_each_allocation_of_a_session_may_fail(tmp_path: Path):
    """It says that there is no memory; once the network is claimed, onnxruntime only logs what fails of the rest."""
    weights = [numpy_helper.from_array(np.ones((8, 8), np.float32), n) for n in "wv"]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Gemm", ["m", "v"], ["y"], alpha=2.0)]
    path = save(model(nodes, [value("x", (2, 8))], [value("y", (2, 8))], weights), tmp_path)
    graph = graph_of(path, export_provider(None, tmp_path / "graphs.so"))
    network = export_part(use_kernels(read_onnx(path), math="strict"))
    library = export_provider(None, tmp_path / "scarce-provider.so", networks={graph: [network]})
    scarce = tmp_path / "scarce.so"
    source = Path(__file__).parent / "scarce.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", source, "-o", scarce, "-ldl"], check=True)
    command = [sys.executable, "-c", SCARCE, path, str(library), str(scarce)]
    environment = {**os.environ, "LD_PRELOAD": str(scarce)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    number, refusals = map(int, done.stdout.splitlines()[-1].split())
    assert refusals > number / 2 > 5
