"""Kernels and networks for browsers, in Node."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from models import fixed, model, save, value
from near import assert_near
from onnx import TensorProto, helper

from tvmconv import cli
from tvmconv.building.builder import build
from tvmconv.errors import InputError, VerificationError
from tvmconv.exporting import web_exporter
from tvmconv.exporting.web_exporter import export_web
from tvmconv.lowering.cpu.stack import STACK_BYTES
from tvmconv.network.compile import export_part
from tvmconv.network.operators import division
from tvmconv.network.passes import use_kernels
from tvmconv.network.read.onnx.reader import read_onnx
from tvmconv.platforms.web import PLATFORM
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.kernel_object import custom_sections, with_custom_section
from tvmconv.runtime.networks.tensors import random_arrays, tensors_of
from tvmconv.runtime.networks.web import run_web
from tvmconv.signature import parse_signature
from tvmconv.support.toolchain import ZIG

from .test_onnxruntime_network import network_model

needs_web = pytest.mark.skipif(
    shutil.which("node") is None or find_spec(ZIG) is None, reason=f"no node, or no Python package {ZIG}"
)
PLAIN, RELAXED = ("simd128",), ("relaxed-simd", "simd128")
DENSE = "conv2d-n1-i16x9x7-o24x9x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias-relu"
DEPTHWISE = "conv2d-n1-i24x8x8-o24x4x4-k3x3-s2x2-d1x1-p1x1_0x0-g24-NXC-XIO-f32-bias"


@pytest.fixture(scope="module")
def folder(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an export by a package that pip has compiled."""
    folder, installed = tmp_path_factory.mktemp("web") / "net", tmp_path_factory.mktemp("installed") / "web"
    shutil.copytree(Path(web_exporter.__file__).with_name("web"), installed)
    (installed / "__pycache__").mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web_exporter, "_FILES", installed)
        assert cli.main(["compile", file, "--format", "web", "-o", str(folder), "--require-comparison"]) == 0
    return folder


def in_node(folder: Path, script: str) -> str:
    """Return what a script prints that begins with the network loaded."""
    text = f"import {{ arrayOf, load }} from {json.dumps(str(folder / 'model.js'))};\n{script}"
    command = ["node", "--input-type=module", "-e", text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@needs_web
@pytest.mark.parametrize("target", ["wasm32", "wasm32-relaxed"])
def test_kernels_are_exact(target: str, tmp_path: Path) -> None:
    problems = [parse_signature(each) for each in (DENSE, DEPTHWISE)]
    bundle = read_bundle(build(problems, tmp_path / "b.bundle", target, jobs=1, math="strict"))
    for entry in bundle.entries:
        assert entry.verified == "emulated" and entry.error == {"measure": "exact", "value": 0.0}
        assert entry.emulator is not None and entry.emulator.startswith("node v") and entry.file.endswith(".wasm")
    assert cli.main(["verify", str(bundle.path)]) == 0


@needs_web
@pytest.mark.parametrize("features", [PLAIN, RELAXED])
def test_answers_are_those_of_onnxruntime(features: tuple[str, ...], file: str, folder: Path) -> None:
    arrays = random_arrays(tensors_of(json.loads((folder / "export.json").read_text()), "inputs"))
    expected = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, arrays)
    one = run_web(folder, arrays, features)
    assert_near(list(one.values()), expected, 16 * 9, 2)
    for threads in (2, 5):
        for name, array in run_web(folder, arrays, features, threads).items():
            np.testing.assert_array_equal(array, one[name])


@needs_web
def test_threads_end_and_begin_loops_many_times(folder: Path) -> None:
    script = """
    const one = await load(undefined, { threads: 1 }), three = await load(undefined, { threads: 3 });
    const given = Object.fromEntries(one.inputs.map((each) => [each.name, arrayOf(each).map((_, index) => (index % 7) - 3)]));
    const expected = Object.values(one.run(given));
    let same = 0;
    for (let call = 0; call < 300; call++) same += Object.values(three.run(given)).every((array, at) => array.every((each, index) => each === expected[at][index]));
    three.close();
    console.log(one.threads, three.threads, same);
    for (const threads of [0, 1.5, "2"]) await load(undefined, { threads }).catch((error) => console.log(error.name, error.message));
    """
    first, *refused = in_node(folder, script).splitlines()
    assert first == "1 3 300"
    assert refused == [f"RangeError threads is {each}; allowed: a whole number from 1 on" for each in ("0", "1.5", "2")]


@needs_web
def test_wrong_arguments_are_exceptions(folder: Path) -> None:
    script = """
    const network = await load();
    const whole = Object.fromEntries(network.inputs.map((each) => [each.name, arrayOf(each).fill(0.5)])), { x, z } = whole;
    const first = network.run(whole);
    for (const given of [undefined, 3, x, [x, z], { x }, { ...whole, y: x }, { x: new Float64Array(x.length), z }, { x: x.slice(1), z }])
      try { network.run(given); console.log("taken", given); } catch (error) { console.log(error.name, error.message); }
    const again = network.run(whole), same = ([name, array]) => array.every((each, index) => each === again[name][index]);
    console.log(Object.entries(first).every(same), network.times().length > 0);
    """
    *errors, last = in_node(folder, script).splitlines()
    assert last == "true true" and len(errors) == 8
    assert all(each.startswith(("TypeError ", "RangeError ")) and "the network takes" in each for each in errors), (
        errors
    )


@needs_web
def test_a_picture_is_an_input(tmp_path: Path) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])]
    file = save(model(nodes, [value("x", (1, 3, 6, 5))], weights=[fixed("w", 4, 3, 3, 3)]), tmp_path)
    assert cli.main(["compile", file, "--format", "web", "-o", str(tmp_path / "net")]) == 0
    script = """
    const network = await load(), { width, height, channelsLast } = network.imageSize;
    const data = Uint8ClampedArray.from({ length: 4 * width * height }, (_, index) => (index * 37) % 256);
    const mean = [0.5, 0.25, 0], std = [0.5, 1, 2], x = new Float32Array(3 * width * height);
    for (let colour = 0; colour < 3; colour++)
      for (let pixel = 0; pixel < width * height; pixel++)
        x[colour * width * height + pixel] = (data[4 * pixel + colour] / 255 - mean[colour]) / std[colour];
    const { y } = network.run(x), answer = network.runImage({ data, width, height }, { mean, std }).y;
    console.log(width, height, channelsLast, y.length, y.some((each) => each !== 0), y.every((each, index) => each === answer[index]));
    try { network.runImage({ data, width: height, height: width }); } catch (error) { console.log(error.name, error.message); }
    """
    said, refused = in_node(tmp_path / "net", script).splitlines()
    assert (
        said == "5 6 false 120 true true" and refused == "RangeError the picture has 6x5 pixels; the network takes 5x6"
    )


@needs_web
def test_damage_is_refused(folder: Path, tmp_path: Path) -> None:
    arrays = random_arrays(tensors_of(json.loads((folder / "export.json").read_text()), "inputs"))
    for name, change, said in (
        ("model.weights", lambda content: content[:-1], "the file is cut off, or another model's"),
        ("model.weights", lambda content: content + b"0", "the file is cut off, or another model's"),
        ("model.wasm", lambda content: content[: len(content) // 2], "WebAssembly.compile"),
        ("model.wasm", lambda content: b"\0asm\1\0\0\0", "no module of a network"),
    ):
        damaged = tmp_path / "damaged"
        shutil.copytree(folder, damaged)
        (damaged / name).write_bytes(change((damaged / name).read_bytes()))
        with pytest.raises(VerificationError, match=said):
            run_web(damaged, arrays, PLAIN)
        shutil.rmtree(damaged)


@needs_web
def test_an_engine_without_vectors_is_refused(folder: Path) -> None:
    script = """
    WebAssembly.validate = () => false;
    await load().catch((error) => console.log(error.message));
    """
    assert "this engine has no simd128 of WebAssembly" in in_node(folder, script)


@needs_web
def test_the_folder_is_a_package(folder: Path, tmp_path: Path) -> None:
    assert {each.name for each in folder.iterdir()} == {
        *(f"model{each}.wasm" for each in ("", "-threads", "-relaxed", "-relaxed-threads")),
        *("model.weights", "model.js", "worker.js", "threads.js", "model.d.ts", "worker.d.ts"),
        *("index.html", "serve.py", "package.json", "export.json"),
    }
    module = (folder / "model.wasm").read_bytes()
    names = [name for name, _ in custom_sections(module)]
    assert "tvmconv.description" in names and module.startswith(b"\0asm")
    assert "import" not in in_node(folder, "console.log('loaded', (await load()).target)")


@pytest.mark.parametrize(
    "arguments",
    [["--format", "web", "--target", "x86-64-v3"], ["--target", "wasm32"], ["--format", "c", "--target", "wasm32"]],
)
def test_formats_are_of_their_platforms(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(network_model(channels=16, size=(20, 24)), tmp_path)
    assert cli.main(["compile", path, "-o", str(tmp_path / "net.so"), *arguments]) != 0
    assert "--format web with wasm32" in capsys.readouterr().err


def test_free_extents_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything is compiled: of an ONNX file, and of a program that has them."""
    torch = pytest.importorskip("torch")
    made = model([helper.make_node("Relu", ["x"], ["y"])], [value("x", (1, 3, "h", "w"))], [value("y", None)])
    free = {"input": {2: torch.export.Dim("h", min=2)}}
    program = torch.export.export(torch.nn.ReLU(), (torch.ones(1, 3, 8, 8),), dynamic_shapes=free)
    torch.export.save(program, tmp_path / "relu.pt2")
    for source in ([save(made, tmp_path), "--shape", "1x3x?x?"], [str(tmp_path / "relu.pt2")]):
        assert cli.main(["compile", *source, "--format", "web", "-o", str(tmp_path / "net")]) == 2
        assert "--format web needs fixed extents" in capsys.readouterr().err


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16384, 3_000_000])
def test_custom_sections_come_back(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    module = with_custom_section(with_custom_section(b"\0asm\1\0\0\0", "first", b"1"), "name", content)
    assert list(custom_sections(module)) == [("first", b"1"), ("name", content)]


@needs_web
def test_other_inputs_are_named(folder: Path) -> None:
    with pytest.raises(InputError, match="the network takes"):
        run_web(folder, {"strange": np.zeros(3, np.float32)}, PLAIN)


def test_stacks_hold_what_two_functions_keep_there() -> None:
    """A kernel's loop is a function that its function calls; each thread's stack is as large as the module's own."""
    (size,) = re.findall(r"stack-size=(\d+)", " ".join(PLATFORM.link_flags))
    assert int(size) > 2 * STACK_BYTES
    assert f"const STACK = {size}," in (Path(web_exporter.__file__).with_name("web") / "model.js").read_text()


@needs_web
def test_a_trap_is_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In any thread, of which none waits for another for good."""
    monkeypatch.setattr(division, "OPERATORS", {})  # TVM's divisions of integers by 0 trap
    nodes = [helper.make_node("Div", ["x", "z"], ["y"])]
    ends = [value(name, (400, 1000), TensorProto.INT32) for name in ("x", "z", "y")]
    file = save(model(nodes, ends[:2], ends[2:]), tmp_path)
    module = use_kernels(read_onnx(file), "wasm32", progress=lambda *_: None)
    export_web({"wasm32": export_part(module, "wasm32")}, "quotient", tmp_path / "net")
    script = """
    const x = new Int32Array(400000).fill(7), z = x.slice().fill(2);
    for (const at of [0, 399999]) {
      const network = await load(undefined, { threads: 3 });
      console.log(network.run({ x, z }).y.every((each) => each === 3));
      z[at] = 0;
      for (let call = 0; call < 2; call++) try { network.run({ x, z }); } catch (error) { console.log(error.message); }
      z[at] = 2;
      network.close();
    }
    """
    said = in_node(tmp_path / "net", script).splitlines()
    slow = SLOW.replace("FOLDER", json.dumps(str(tmp_path / "net"))).replace("GIVEN", "3")
    assert in_node(tmp_path / "net", slow).splitlines() == ["1 2 true", "2 2 true"]  # zeros by zeros, meanwhile
    known = ("divide by zero", "RuntimeError: a thread stopped", "the network is closed: load it again")
    assert [said[0], said[3]] == ["true"] * 2 and all(each.startswith(known) for each in said[1:3] + said[4:]), said


SLOW = """
import { createServer } from "node:http";
import { readFile } from "node:fs/promises";
let wait = 0, made = 0;
const server = createServer(async ({ url }, response) => {
  if (url === "/model.weights") await new Promise((resolve) => setTimeout(resolve, wait));
  response.end(await readFile(FOLDER + url));
});
await new Promise((resolve) => server.listen(0, resolve));
const place = `http://localhost:${server.address().port}/`, instantiate = WebAssembly.instantiate;
WebAssembly.instantiate = (...given) => { made++; return instantiate(...given); };
const given = (network) => Object.fromEntries(network.inputs.map((each) => [each.name, arrayOf(each).fill(GIVEN)]));
const near = await load(undefined, { threads: 1 }), right = String(Object.values(near.run(given(near))).map((each) => [...each]));
for (const threads of [1, 2]) {
  [wait, made] = [400, 0];
  const network = await load(place, { threads });
  console.log(network.threads, made, String(Object.values(network.run(given(network))).map((each) => [...each])) === right);
  network.close();
}
server.close();
"""


@needs_web
def test_code_runs_while_weights_come(folder: Path) -> None:
    """By a network of zeros beside, which does not change the answers; a thread has an instance of its own, too."""
    script = SLOW.replace("FOLDER", json.dumps(str(folder))).replace("GIVEN", "3")
    assert in_node(folder, script).splitlines() == ["1 2 true", "2 2 true"]


@needs_web
def test_nothing_goes_on_after_a_failure(folder: Path, tmp_path: Path) -> None:
    """Node ends by itself, which it does not while threads run that it waits for."""
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    (damaged / "model.weights").unlink()
    script = "await load(undefined, { threads: 3 }).catch((error) => console.log(error.message));"
    assert "ENOENT" in in_node(damaged, script)
    (damaged / "threads.js").unlink()
    shutil.copy(folder / "model.weights", damaged)
    assert "a thread failed" in in_node(damaged, script)
    script = """
    const network = await load();
    network.close();
    try { network.times(); } catch (error) { console.log(error.message); }
    """
    assert in_node(folder, script) == "the network is closed: load it again"
