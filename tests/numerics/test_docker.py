"""The example of two images: the Dockerfile's commands, each stage in a fresh virtual environment in the place of an image."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
import venv
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from models import model, save, value
from near import assert_near
from onnx import helper, numpy_helper

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples/docker/Dockerfile"


class Stages:
    """Folders in the place of images, in which a Dockerfile's instructions are followed."""

    def __init__(self, folder: Path, context: Path, arguments: dict[str, str]) -> None:
        self.folder, self.context, self.arguments = folder, context, arguments
        self.names: dict[str, Path] = {}
        self.command: list[str] = []

    def follow(self, text: str) -> None:
        lines = re.sub(r"\\\n", " ", text).splitlines()
        for line in (each.strip() for each in lines if each.strip() and not each.startswith("#")):
            word, _, rest = line.partition(" ")
            getattr(self, f"_{word.lower()}")(rest)

    def run(self, *command: str) -> subprocess.Popen[bytes]:
        environment = {"PATH": f"{self.root / 'venv/bin'}:{os.environ['PATH']}", "HOME": str(self.root)}
        return subprocess.Popen(command, cwd=self.at, env=environment)

    def _from(self, rest: str) -> None:
        _, _, name = rest.partition(" AS ")
        self.root = self.at = self.folder / f"image{len(list(self.folder.glob('image*')))}"
        self.names[name] = self.root
        venv.create(self.root / "venv", with_pip=True)

    def _workdir(self, rest: str) -> None:
        self.at = self.root / rest.lstrip("/")
        self.at.mkdir(parents=True)

    def _arg(self, rest: str) -> None:
        assert rest in self.arguments

    def _copy(self, rest: str) -> None:
        rest = re.sub(r"\$(\w+)", lambda name: self.arguments[name[1]], rest)
        origin = self.context
        if found := re.match(r"--from=(\w+) /(.*)", rest):
            origin, rest = self.names[found[1]], found[2]
        source, target = rest.split()
        if (origin / source).is_dir():
            shutil.copytree(origin / source, self.at / target)
        else:
            shutil.copy(origin / source, self.at / target)

    def _run(self, rest: str) -> None:
        if "apt-get" not in rest:  # what this machine has
            assert self.run("sh", "-ec", rest).wait() == 0, rest

    def _cmd(self, rest: str) -> None:
        self.command = json.loads(rest)


@pytest.mark.slow
@pytest.mark.isa("avx2")
def test_one_image_compiles_and_another_serves(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["y"])]
    made = model(nodes, [value("x", (1, 3, 9, 9))], [value("y", None)], [numpy_helper.from_array(weights, "w")])
    context = tmp_path / "context"
    ignored = shutil.ignore_patterns(".*", "*.egg-info", "build", "dist", "*.bundle", "__pycache__")
    shutil.copytree(ROOT, context, ignore=ignored)
    shutil.copy(save(made, tmp_path), context / "own.onnx")
    stages = Stages(tmp_path, context, {"MODEL": "own.onnx"})
    stages.follow(FILE.read_text())
    with socket.socket() as free:
        free.bind(("", 0))
        port = str(free.getsockname()[1])
    assert stages.command.pop() == "8000"
    server = stages.run(*stages.command, port)
    try:
        data = np.random.default_rng(1).standard_normal((1, 3, 9, 9)).astype(np.float32)
        found = np.load(io.BytesIO(_ask(port, data)))
        (expected,) = onnxruntime.InferenceSession(str(context / "own.onnx")).run(None, {"x": data})
        assert_near(found, expected, summed=27)
        with pytest.raises(urllib.error.HTTPError, match="400"):
            _ask(port, data[:, :2])
        with pytest.raises(urllib.error.HTTPError, match="400"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", b"PK\x03\x04 a damaged file")
        lacks = "import importlib.util, sys; sys.exit(any(map(importlib.util.find_spec, ('tvm', 'onnx', 'torch'))))"
        assert stages.run("python", "-c", lacks).wait() == 0
    finally:
        server.terminate()
        server.wait()


def _ask(port: str, data: np.ndarray) -> bytes:
    body = io.BytesIO()
    np.save(body, data)
    for _ in range(600):  # until it has started
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", body.getvalue()) as answer:
                return answer.read()
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            time.sleep(0.1)
    raise AssertionError("the server did not start")
