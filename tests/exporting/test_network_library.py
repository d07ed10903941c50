"""Networks as libraries for C: every way to call them, what is refused, and those for 64-bit ARM under an emulator."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from emulated import COMPILER, N1, emulator_of, needs_emulator
from models import model, save, value
from near import assert_near
from onnx import helper

from tvmconv import cli
from tvmconv.exporting import network_header
from tvmconv.exporting.network_part import NetworkPart

from .conftest import HERE, STRICT, needs_cmake, run
from .test_onnxruntime_network import network_model

PEDANTIC = [each for each in STRICT if not each.startswith("-D")]


def compiled(file: str, folder: Path, *more: str) -> Path:
    assert cli.main(["compile", file, "--math", "strict", "--format", "c", "-o", str(folder), *more]) == 0
    return folder


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(network_model(channels=32, size=(56, 48)), tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def library(file: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(file, tmp_path_factory.mktemp("library") / "net")


@pytest.mark.parametrize(
    "link", [["libnet.a", "-lm"], ["-L.", "-lnet", "-Wl,-rpath,$ORIGIN"], ["-static", "libnet.a", "-lm"]]
)
def test_all_calls(link: list[str], library: Path, tmp_path: Path):
    for source in (HERE / "network.c", library / "smoke.c"):
        program = library / f"{source.stem}-{link[0].strip('-.')}"
        run(
            "cc",
            *PEDANTIC,
            "-D_GNU_SOURCE",
            f"-I{library}",
            source,
            *link,
            "-lm",
            "-pthread",
            "-o",
            program,
            cwd=library,
        )
        run(program, cwd=library)


def test_in_cpp(cpp: tuple[str, ...], library: Path, tmp_path: Path):
    command = (*cpp, *PEDANTIC[:4], HERE / "network.cpp", f"-I{library}", library / "libnet.a")
    run(*command, "-pthread", "-o", tmp_path / "network")
    run(tmp_path / "network", library / "smoke.bin")


def test_answers_are_those_in_python(file: str, library: Path, tmp_path: Path):
    """What smoke.bin has is onnxruntime's, for the inputs that a network in Python tries itself on."""
    assert cli.main(["compile", file, "--math", "strict", "-o", str(tmp_path / "net.so")]) == 0
    from tvmconv import load_network

    network = load_network(tmp_path / "net.so")
    outputs = network(**network.random_inputs())
    expected = b"".join(np.ascontiguousarray(each).tobytes() for each in outputs.values())
    numbers = (library / "smoke.bin").read_bytes()[-len(expected) :]
    for name, each in zip(outputs, np.split(np.frombuffer(numbers, np.uint8), [outputs["y"].nbytes]), strict=True):
        found = each.view(outputs[name].dtype).reshape(outputs[name].shape)
        assert_near(found, outputs[name], summed=100, layers=4)


def test_smoke_reads_whole_integers(library: Path, tmp_path: Path):
    types = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    calls = [
        f'{{ static const {each}_t array[] = {{0, ({each}_t)-2}}; net_tensor tensor = {{"x", "{each}", 1, NULL, 2, sizeof array}};'
        ' printf("%.0f\\n", number(&tensor, array, 1)); }'
        for each in types
    ]
    program = (
        f'#define main unused\n#include "smoke.c"\n#undef main\nint main(void) {{ {" ".join(calls)} return 0; }}\n'
    )
    (tmp_path / "read.c").write_text(program)
    run(
        "cc",
        *STRICT,
        f"-I{library}",
        tmp_path / "read.c",
        library / "libnet.a",
        "-lm",
        "-pthread",
        "-o",
        tmp_path / "read",
    )
    assert list(map(float, run(tmp_path / "read").split())) == [
        float(np.iinfo(each).max - 1 if each[0] == "u" else -2) for each in types
    ]


@needs_cmake
def test_cmake(library: Path, tmp_path: Path):
    run("cmake", "-S", library, "-B", tmp_path / "build")
    run("cmake", "--build", tmp_path / "build")
    run("ctest", "--test-dir", tmp_path / "build", "--output-on-failure")


def test_what_it_tells(library: Path):
    described = json.loads((library / "export.json").read_text())
    assert (described["format"], described["name"], described["model"]) == ("tvmconv-network", "net", "model.onnx")
    shown = run("nm", "-g", "--defined-only", library / "libnet.a").split()
    assert {each for each in shown if "net" in each} == {
        "net.o:",
        *(f"net_{each}" for each in ("open", "close", "run", "run_with", "supported", "inputs", "outputs")),
        *("net_error_string", "net_error_text"),
    }
    needed = run("readelf", "-d", library / "libnet.so")
    assert "tvm_ffi" not in needed
    run("c++", "-x", "c++", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", library / "net.h")


def test_names_are_as_the_model_has_them():
    """Texts that stand for the library's in its sources are none in a model's names."""
    ends = {
        "inputs": [
            {"name": "FILENAME.0", "shape": [1, 2], "dtype": "bfloat16"},
            {"name": "NAME_x", "shape": [], "dtype": "int64"},
            *({"name": name, "shape": [], "dtype": "bool"} for name in ("a.b", "a_b_4", "a/b")),
        ],
        "outputs": [{"name": "TARGET", "shape": [3], "dtype": "bool"}],
    }
    part = NetworkPart(b"", (), {"target": "znver4", "arena_bytes": 64, **ends}, "")
    shown = network_header.header(part, "net", "MY_NAME_STACK.onnx")
    assert "/* net.h: the network MY_NAME_STACK.onnx, for znver4, " in shown
    assert "#define net_INPUT_FILENAME_0 0 /* bfloat16 [1, 2] */" in shown
    assert [f"#define net_INPUT_a_b{end} " in shown for end in ("", "_4", "_4_4")] == [True] * 3
    assert "#define net_OUTPUT_TARGET 0 /* bool [3] */" in shown
    table = network_header.tables(part, "net")
    assert '{"FILENAME.0", "bfloat16", 2, inputs0, 2, 4}' in table
    assert r'{"NAME\137x", "int64", 0, inputs1, 1, 8}' in table


def test_an_earlier_export_is_replaced_and_nothing_else(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    assert cli.main(["compile", file, "--format", "c", "-o", str(tmp_path / "mine")]) == 2
    assert "exists and is not an export" in capsys.readouterr().err
    assert (tmp_path / "mine" / "notes").read_text() == "mine"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--format", "c", "--name", "1st"], "must be a C identifier"),
        (["--format", "c", "--name", "stdio"], "is a header of the system's"),
        (["--name", "net"], "--name is the prefix of C functions: add --format c"),
    ],
)
def test_refusals(more: list[str], why: str, file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["compile", file, "-o", str(tmp_path / "net"), *more]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "net").exists()


NODES: dict[str, list[onnx.NodeProto]] = {
    "normalized": [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("HardSwish", ["c"], ["h"]),
        helper.make_node("AveragePool", ["h"], ["a"], kernel_shape=[3, 3]),
        helper.make_node("Transpose", ["a"], ["t"], perm=[0, 2, 3, 1]),
        helper.make_node("LayerNormalization", ["t", "s"], ["l"]),
        helper.make_node("Softmax", ["l"], ["y"]),
    ],
    "sorted": [
        helper.make_node("Conv", ["x", "w"], ["c"], group=1, dilations=[2, 2]),
        helper.make_node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2]),
        helper.make_node(
            "Resize", ["m", "", "scales"], ["r"], mode="nearest", coordinate_transformation_mode="asymmetric"
        ),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("TopK", ["f", "k"], ["y", "i"]),
    ],
    "attended": [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("Reshape", ["c", "heads"], ["h"]),
        helper.make_node("Transpose", ["h"], ["q"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "h"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"]),
        helper.make_node("MatMul", ["shares", "q"], ["a"]),
        helper.make_node("Transpose", ["a"], ["y"], perm=[0, 2, 1, 3]),
    ],
}


@needs_emulator
@pytest.mark.parametrize("name", ["whole", *NODES])
def test_64_bit_arm(name: str, file: str, tmp_path: Path):
    if name != "whole":
        rng = np.random.default_rng(0)
        weights = [
            onnx.numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype(np.float32), "w"),
            onnx.numpy_helper.from_array(rng.standard_normal(8).astype(np.float32), "s"),
            onnx.numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales"),
            onnx.numpy_helper.from_array(np.array([5], np.int64), "k"),
            onnx.numpy_helper.from_array(np.array([1, 2, 4, -1], np.int64), "heads"),
        ]
        read = {each for node in NODES[name] for each in node.input}
        outputs = [value(each, None, onnx.TensorProto.INT64 if each == "i" else 1) for each in NODES[name][-1].output]
        made = model(NODES[name], [value("x", (1, 3, 16, 15))], outputs, [w for w in weights if w.name in read])
        file = save(made, tmp_path)
    folder = compiled(file, tmp_path / "net", "--target", N1)
    emulator = emulator_of(N1)
    assert emulator is not None
    run(
        COMPILER,
        *PEDANTIC,
        "-D_GNU_SOURCE",
        "smoke.c",
        "libnet.a",
        "-lm",
        "-pthread",
        "-static",
        "-o",
        "smoke",
        cwd=folder,
    )
    run(emulator.program, "-cpu", emulator.cpu, "./smoke", cwd=folder)
    older: Any = subprocess.run(
        [emulator.program, "-cpu", "cortex-a53", "./smoke"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert older.returncode == 77
    assert "this CPU lacks features" in older.stderr
