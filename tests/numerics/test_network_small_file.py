"""Networks whose file has filters as the model has them: they have the bits of those that are packed ahead."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from kernels import host_without_tiles
from models import fixed as integers
from models import model, save, value
from onnx import TensorProto, helper

import tvmconv
from tvmconv import cli
from tvmconv.errors import InputError
from tvmconv.network.options import Options

node, C = helper.make_node, 64  # channels, of which Winograd's filters are several times as large


def branching() -> onnx.ModelProto:
    """Return a model with large filters, one of them outside and inside of an If."""
    three = {"pads": [1, 1, 1, 1]}
    one = [node("Conv", ["r", "v"], ["a"], **three), node("Conv", ["a", "w"], ["d"], **three)]
    two = [node("Conv", ["r", "u"], ["e"])]
    then, other = (helper.make_graph(nodes, end, [], [value(end, None)]) for nodes, end in ((one, "d"), (two, "e")))
    nodes = [
        node("Conv", ["x", "w"], ["c"], **three),
        node("Relu", ["c"], ["r"]),
        node("If", ["choice"], ["y"], "choose", then_branch=then, else_branch=other),
    ]
    weights = [integers("w", C, C, 3, 3), integers("v", C, C, 3, 3, seed=1), integers("u", C, C, 1, 1, seed=2)]
    inputs = [value("x", [1, C, 20, 20]), value("choice", [1], TensorProto.BOOL)]
    return model(nodes, inputs, [value("y", None)], weights)


def test_answers_are_those_of_filters_packed_ahead(tmp_path: Path) -> None:
    source = save(branching(), tmp_path)
    networks = {}
    for file in ("default", "small"):
        path = tmp_path / f"{file}.so"
        options = ["--file", file, "--target", host_without_tiles().name]
        assert cli.main(["compile", str(source), *options, "-o", str(path)]) == 0
        networks[file] = tvmconv.load_network(path)
    plain, whole = (networks[each].file.footprint for each in ("small", "default"))
    assert any("winograd" in row["algorithm"] for row in networks["small"].description["report"])
    assert whole.prepared == 0 < plain.prepared
    assert plain.weights < 1.05 * plain.model < whole.weights
    again = tvmconv.load_network(tmp_path / "small.so")
    for choice in (True, False):
        arrays = networks["small"].random_inputs() | {"choice": np.array([choice])}
        (expected,), *answers = (
            [*each(**arrays).values()] for each in (networks["default"], *networks.values(), again)
        )
        assert all(np.array_equal(expected, answer) for (answer,) in answers)
        names = [each.name for each in networks["small"].operators(arrays, 0.01)]
        assert len(names) == len(set(names)) and not any("pack" in each for each in names)  # it ran when it was loaded


def test_a_library_for_c(tmp_path: Path) -> None:
    source, folder = save(branching(), tmp_path), tmp_path / "net"
    assert cli.main(["compile", str(source), "--file", "small", "--format", "c", "-o", str(folder)]) == 0
    command = ["cc", "-I.", "smoke.c", "libnet.a", "-lm", "-pthread", "-o", "smoke"]
    subprocess.run(command, cwd=folder, check=True)
    subprocess.run(["./smoke"], cwd=folder, check=True)


def test_other_files_are_refused() -> None:
    with pytest.raises(InputError, match="file is 'tiny'; allowed: default, small"):
        Options(file="tiny")
