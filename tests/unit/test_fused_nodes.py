"""Nodes with epilogues in a bundle: their arrays, the tensor that they add, and what a manifest says of them.

Their kernels are stood in for by the reference.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from followed import CHANNELS, built, make, run
from models import save, value
from near import assert_near
from onnx import helper
from toys import entry, write_bundle

import tvmconv
from tvmconv import cli, reference
from tvmconv.building.filters import add_filters
from tvmconv.errors import BundleError, InputError, KernelNotFoundError
from tvmconv.frontends import Model, read_model
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import read_bundle
from tvmconv.runtime.kernel import Kernel
from tvmconv.signature import format_signature

RESIDUAL = (2, CHANNELS, 5, 6)


def source_of(folder: Path) -> str:
    """Write a model of a convolution with every kind of array, and one that another tensor is added to; return its path."""
    nodes = [
        *(make("Add", "c vector", "d"), make("PRelu", "d slopes", "e"), make("Mul", "e factors", "f"), make("Tanh", "f", "g")),
        helper.make_node("Conv", ["g", "w2"], ["h"], name="second"),
        *(make("Add", "r h", "i"), make("Relu", "i", "y")),
    ]  # fmt: skip
    return save(built(nodes, inputs=[value("r", RESIDUAL)]), folder)


def toy(folder: Path, problems: list[Problem]) -> Path:
    write_bundle(folder, [entry(format_signature(problem)) for problem in problems])
    return folder


def computed(kernel: Kernel, symbol: str, openmp: bool = False) -> Callable[..., None]:
    """Return what stands in for a kernel's function."""

    def call(*arrays: np.ndarray) -> None:
        *inputs, output = arrays
        output[...] = reference.compute(kernel.problem, **dict(zip(kernel.problem.operands, inputs, strict=True)))

    return call


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    monkeypatch.setattr(Kernel, "_load", computed)
    return read_model(source_of(tmp_path), with_constants=True)


def test_a_bundle_has_all_that_a_node_takes(model: Model, tmp_path: Path) -> None:
    path = toy(tmp_path / "b", model.problems())
    size = add_filters(path, [model])
    first, second = read_bundle(path).nodes
    assert (first.name, first.output, first.residual) == ("conv", "g", None)
    assert (second.name, second.output, second.residual) == ("second", "y", "r")
    assert list(first.vectors) == ["bias", "scale", "slope"] and second.vectors == {}
    assert size == sum((path / blob.file).stat().st_size for blob in {*first.blobs(), *second.blobs()})
    tensors = run(model.source, ["g", "y"])
    registry = tvmconv.load(path)
    node = registry.node("conv")
    assert (node.output, node.residual) == ("g", None)
    assert_near(node(tensors["x"]), tensors["g"], summed=CHANNELS * 9, layers=4)
    node = registry.node("second")
    assert (node.output, node.residual) == ("y", "r")
    out = np.empty(RESIDUAL, np.float32)
    assert node(tensors["g"], out, residual=tensors["r"]) is out
    assert_near(out, tensors["y"], summed=CHANNELS * 9, layers=2)


def test_other_types(model: Model, tmp_path: Path) -> None:
    """Factors and slopes are f32, whatever the kernel's type."""
    problems = [problem.with_(dtype="f16") for problem in model.problems()]
    path = toy(tmp_path / "b", problems)
    add_filters(path, [read_model(model.source, with_constants=True, dtype="f16")])
    tensors = run(model.source, ["g"])
    output = tvmconv.load(path).node("conv")(tensors["x"].astype(np.float16))
    assert output.dtype == np.float16
    # Of numbers before a tanh of 10 and more, in f16, which keeps what they differ by.
    assert_near(output, tensors["g"], summed=CHANNELS * 9, layers=4, magnitude=5.0)


def test_a_residual_is_missing_or_too_much(model: Model, tmp_path: Path) -> None:
    path = toy(tmp_path / "b", model.problems())
    add_filters(path, [model])
    registry = tvmconv.load(path)
    data = np.zeros(RESIDUAL, np.float32)
    with pytest.raises(
        InputError, match=r"residual is missing: <tvmconv.Node second of model.onnx> adds the tensor 'r'"
    ):
        registry.node("second")(data)
    with pytest.raises(
        InputError, match=r"residual was given, but <tvmconv.Node conv of model.onnx> adds no other tensor"
    ):
        registry.node("conv")(np.zeros((2, 4, 7, 8), np.float32), residual=data)
    with pytest.raises(InputError, match="residual has shape"):
        registry.node("second")(data, residual=data[:1])


def test_fused_differently(model: Model, tmp_path: Path) -> None:
    """What is built later replaces the same node; two bundles that have it fused differently are refused."""
    plain = read_model(model.source, with_constants=True, fuse=False)
    paths = [toy(tmp_path / name, [*model.problems(), *plain.problems()]) for name in "ab"]
    add_filters(paths[0], [plain])
    assert [node.output for node in read_bundle(paths[0]).nodes] == ["d", "h"]
    add_filters(paths[1], [model])
    with pytest.raises(
        KernelNotFoundError, match=r"'second' computes the tensor h \(adding nothing\) or y \(adding r\)"
    ):
        tvmconv.load(*paths).node("second")
    add_filters(paths[0], [model])
    assert [node.output for node in read_bundle(paths[0]).nodes] == ["g", "y"]
    tvmconv.load(*paths).node("second")


def test_manifests(model: Model, tmp_path: Path) -> None:
    path = toy(tmp_path / "b", model.problems())
    add_filters(path, [model])
    manifest = json.loads((path / "manifest.json").read_text())

    def changed(**fields: object) -> None:
        nodes = [{**manifest["nodes"][0], **fields}, manifest["nodes"][1]]
        (path / "manifest.json").write_text(json.dumps({**manifest, "nodes": nodes}))

    changed(scale={"file": "../x"})
    with pytest.raises(BundleError, match=r"nodes\[0\]\.scale\.sha256 is missing"):
        read_bundle(path)
    changed(residual=3)
    with pytest.raises(BundleError, match=r"nodes\[0\]\.residual is 3; it must be null or a text"):
        read_bundle(path)
    changed(later=1)
    assert len(read_bundle(path).nodes) == 2
    # As before there were epilogues.
    for name in ("scale", "slope", "residual"):
        del manifest["nodes"][0][name]
    changed()
    assert list(read_bundle(path).nodes[0].vectors) == ["bias"]
    with pytest.raises(BundleError, match=r"has bias, which is not what conv2d-.*-prelu-scale-tanh takes"):
        tvmconv.load(path).node("conv")(np.zeros((2, 4, 7, 8), np.float32))


def test_list_shows_what_kernels_serve(model: Model, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", model.source]) == 0
    rows = [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()]
    assert rows == ["node", "conv + 4", "second + 2"]
    assert cli.main(["list", model.source, "--json"]) == 0
    serves = [row["serves"] for row in json.loads(capsys.readouterr().out)["convolutions"]]
    assert serves == [
        {"conv": ["conv", "Add_d", "PRelu_e", "Mul_f", "Tanh_g"]},
        {"second": ["second", "Add_i", "Relu_y"]},
    ]
    assert cli.main(["list", model.source, "--no-fuse"]) == 0
    out = capsys.readouterr().out
    assert [line.split("  ")[0] for line in out.splitlines()] == ["node", "conv", "second"] and "tanh" not in out
