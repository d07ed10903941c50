"""A model's nodes in a bundle: their filters packed, shared, checked, and enough for a call."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from models import model, save, value
from near import assert_near
from onnx import helper, numpy_helper
from toys import compile_families

import tvmconv
from tvmconv import cli, format_family, reference
from tvmconv.building.filters import add_filters
from tvmconv.errors import BundleError, InputError, KernelNotFoundError, SourceError
from tvmconv.family import Extent
from tvmconv.frontends import read_model
from tvmconv.frontends.families import read_families, served_by
from tvmconv.runtime.bundle import read_bundle, write_manifest
from tvmconv.runtime.packed import plain_layout


def chain(seed: int = 0) -> onnx.ModelProto:
    """Return a model of two convolutions of one filter, the second with a normalization, and one without a fixed filter."""
    rng = np.random.default_rng(seed)
    taps = numpy_helper.from_array(rng.standard_normal((16, 16, 3, 3)).astype(np.float32), "w")
    bias = numpy_helper.from_array(rng.standard_normal(16).astype(np.float32), "b")
    scales = [numpy_helper.from_array(rng.uniform(0.5, 2, 16).astype(np.float32), name) for name in "smvt"]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="first", pads=[1] * 4),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "w"], ["d"], name="second", pads=[1] * 4),
        helper.make_node("BatchNormalization", ["d", "s", "t", "m", "v"], ["n"]),
        helper.make_node("Conv", ["n", "given"], ["y"], name="third"),
    ]
    inputs = [value("x", ("N", 16, "H", "W")), value("given", (4, 16, 1, 1))]
    return model(nodes, inputs, weights=[taps, bias, *scales])


SHAPES = ["--shape", "x=1x16x9x9", "--shape", "x=2x16x7x9"]
READ = {"shapes": {"x": [(1, 16, 9, 9), (2, 16, 7, 9)]}, "with_constants": True}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Return a model, and the bundle that one command made of it at two shapes, for the CPU here and one without AVX-512."""
    folder = tmp_path_factory.mktemp("nodes")
    source = save(chain(), folder)
    arguments = ["build", source, *SHAPES, "-o", str(folder / "b"), "--with-filters", "--jobs", "1", "--math", "strict"]
    assert cli.main([*arguments, "--target", "x86-64-v3", "--target", "host"]) == 0
    return source, folder / "b"


def copied(built: tuple[str, Path], folder: Path) -> Path:
    return Path(shutil.copytree(built[1], folder / "b"))


def test_a_node_computes_with_its_data_alone(built: tuple[str, Path]) -> None:
    bundle = tvmconv.load(built[1])
    for node in read_model(built[0], **READ).nodes:
        if node.constants is None:
            assert node.name == "third"
            continue
        constants, problem = node.constants(), node.problem
        assert constants.output == {"first": "r", "second": "n"}[node.name]
        data = np.random.default_rng(2).standard_normal(problem.data_shape).astype(np.float32)
        output = bundle.node(node.name)(data)
        expected = reference.compute(problem, data, constants.filter, constants.bias)
        assert_near(output, expected, summed=constants.filter.size // problem.out_channels)
        out = np.empty_like(output)
        assert bundle.node(node.name, "model.onnx")(data, out=out) is out
        np.testing.assert_array_equal(out, output)


def test_files_are_shared_and_mapped(built: tuple[str, Path]) -> None:
    bundle = read_bundle(built[1])
    assert [(node.name, node.model) for node in bundle.nodes] == [
        (n, "model.onnx") for n in ("first", "first", "second", "second")
    ]
    # Rows of equal length are tiled alike on every CPU, so the shapes have one packed filter in common.
    for name in ("first", "second"):
        one, other = (node for node in bundle.nodes if node.name == name)
        assert one.bias == other.bias
        assert one.filters.keys() & other.filters.keys()
    files = {blob.file for node in bundle.nodes for blob in node.blobs()}
    assert files == {f"filters/{path.name}" for path in (built[1] / "filters").iterdir()}
    registry = tvmconv.load(built[1])
    registry.node("first")(np.zeros((1, 16, 9, 9), np.float32))
    assert str(built[1] / "filters") in Path("/proc/self/maps").read_text()


def test_variants_that_do_not_run_here_get_the_plain_filter(built: tuple[str, Path], tmp_path: Path) -> None:
    path = copied(built, tmp_path)
    bundle = read_bundle(path)
    features = {name: replace(target, features=(*target.features, "ldir")) for name, target in bundle.targets.items()}
    write_manifest(replace(bundle, targets=features, nodes=()))
    found = read_model(built[0], **READ)
    add_filters(path, [found])
    for node in read_bundle(path).nodes:
        assert list(node.filters) == [plain_layout(tvmconv.parse_signature(node.signature))]
    # On the machine that runs them it is packed at the first call.
    write_manifest(replace(read_bundle(path), targets=bundle.targets))
    data = np.ones((1, 16, 9, 9), np.float32)
    expected = tvmconv.load(built[1]).node("first")(data)
    np.testing.assert_array_equal(tvmconv.load(path).node("first")(data), expected)


def test_what_a_node_refuses(built: tuple[str, Path]) -> None:
    bundle = tvmconv.load(built[1])
    with pytest.raises(KernelNotFoundError, match="no node 'fist': did you mean 'first'"):
        bundle.node("fist")
    with pytest.raises(KernelNotFoundError, match="no node 'third'"):
        bundle.node("third")
    with pytest.raises(KernelNotFoundError, match=r"no node 'first' of other\.onnx"):
        bundle.node("first", "other.onnx")
    for data in (np.zeros((1, 16, 9, 8), np.float32), np.zeros((1, 16, 9, 9), np.float16)):
        with pytest.raises(
            InputError, match=r"has \[1, 16, 9, 9\] NCX f32, \[2, 16, 7, 9\] NCX f32: build it for that"
        ):
            bundle.node("first")(data)
    with pytest.raises(InputError, match="data is a list"):
        bundle.node("first")([1.0])


def test_an_altered_filter_is_not_used(built: tuple[str, Path], tmp_path: Path) -> None:
    path = copied(built, tmp_path)
    for file in (path / "filters").iterdir():
        content = bytearray(file.read_bytes())
        content[0] ^= 1
        file.unlink()
        file.write_bytes(content)
    with pytest.raises(BundleError, match="does not match the build"):
        tvmconv.load(path).node("first")(np.zeros((1, 16, 9, 9), np.float32))
    shutil.rmtree(path / "filters")
    with pytest.raises(BundleError, match="is missing"):
        tvmconv.load(path).node("first")(np.zeros((1, 16, 9, 9), np.float32))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda nodes: {}, "nodes is {}; it must be a list"),
        (lambda nodes: [*nodes, nodes[0]], "twice"),
        (lambda nodes: [{**nodes[0], "name": 3}], r"nodes\[0\]\.name is 3; it must be a text"),
        (lambda nodes: [{**nodes[0], "filters": {}}], r"nodes\[0\]\.filters"),
        (lambda nodes: [{**nodes[0], "bias": {**nodes[0]["bias"], "file": "../x"}}], r"nodes\[0\]\.bias\.file is"),
        (lambda nodes: [{**nodes[0], "bias": {**nodes[0]["bias"], "bytes": -1}}], r"nodes\[0\]\.bias\.bytes is -1"),
    ],
)  # fmt: skip
def test_a_manifest_is_checked(change: object, words: str, built: tuple[str, Path], tmp_path: Path) -> None:
    path = copied(built, tmp_path)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "nodes": change(manifest["nodes"])}))  # type: ignore[operator]
    with pytest.raises(BundleError, match=words):
        read_bundle(path)


def test_another_model_and_another_build_keep_them(built: tuple[str, Path], tmp_path: Path) -> None:
    path = copied(built, tmp_path)
    other = tmp_path / "other.onnx"
    other.write_bytes(chain(seed=5).SerializeToString())
    size = add_filters(path, [read_model(str(other), **READ)])
    assert size > 0
    with pytest.raises(KernelNotFoundError, match=r"several models have a node 'first': .*model\.onnx, other\.onnx"):
        tvmconv.load(path).node("first")
    data = np.ones((1, 16, 9, 9), np.float32)
    before = tvmconv.load(path).node("first", "other.onnx")(data)
    empty = "conv2d-n0-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
    assert cli.main(["build", empty, "-o", str(path)]) == 0
    np.testing.assert_array_equal(tvmconv.load(path).node("first", "other.onnx")(data), before)
    (tmp_path / "more").mkdir()
    third = tmp_path / "more/other.onnx"
    third.write_bytes(chain(seed=6).SerializeToString())
    with pytest.raises(SourceError, match="same file name"):
        add_filters(path, [read_model(str(each), **READ) for each in (other, third)])
    with pytest.raises(SourceError, match="has a fixed filter and a kernel in"):
        add_filters(path, [read_model(str(other), shapes={"x": (7, 16, 9, 9)}, with_constants=True)])


def sounds(tmp_path: Path) -> str:
    """Write a model of sound of any length: pads by a rule, a sum, and a transposed layer."""
    rng = np.random.default_rng(3)
    shapes = {"a": (8, 4, 3), "b": (8, 8, 4), "c": (8, 4, 4)}
    weights = [
        numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "a"], ["h"], name="first", pads=[1, 1]),
        helper.make_node("Conv", ["h", "b"], ["i"], name="same", auto_pad="SAME_UPPER"),
        helper.make_node("Add", ["i", "h"], ["s"]),
        helper.make_node("Conv", ["s", "b"], ["j"], name="half", auto_pad="SAME_LOWER", strides=[2]),
        helper.make_node("ConvTranspose", ["j", "c"], ["y"], name="up", strides=[2], pads=[1, 0], output_padding=[1]),
    ]
    return save(model(nodes, [value("x", ("n", 4, "t"))], weights=weights), tmp_path)


def test_nodes_of_any_size(tmp_path: Path) -> None:
    shapes = {"x": tuple(map(Extent.parse, ("?", "4", "?")))}
    read = read_families(sounds(tmp_path), shapes, with_constants=True)
    texts = [format_family(served_by(node.family)) for node in read.nodes]
    path = compile_families(tmp_path / "b", dict.fromkeys(texts, "direct"))
    assert add_filters(path, [read, read]) == add_filters(path, [read])
    bundle = tvmconv.load(path, split_batch=True)
    for batch, length in ((1, 1), (2, 29), (3, 96)):
        tensors = {"x": np.random.default_rng(length).standard_normal((batch, 4, length)).astype(np.float32)}
        exact = read_model(sounds(tmp_path), shapes={"x": tensors["x"].shape}, with_constants=True).nodes
        for node, source in zip(exact, ("x", "h", "s", "j"), strict=True):
            given, data = {} if node.residual is None else {"residual": tensors["h"]}, tensors[source]
            found = bundle.node(node.name)(data, **given)
            expected = reference.compute(node.problem, data, node.constants().filter, **given)
            assert_near(found, expected, summed=node.problem.in_channels * 4)
            tensors[node.constants().output] = found
    for shape in ((1, 5, 9), (5,), ()):
        with pytest.raises(InputError, match=r"has conv1d-n\?-i4x\?-o8x\?-k3.*: build it for that"):
            bundle.node("first")(np.zeros(shape, np.float32))


def test_list_compares_a_model_with_a_bundle(built: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    source, path = built
    assert cli.main(["list", source, "--shape", "x=1x16x9x9", "--json", str(path)]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["nodes"] for row in rows["convolutions"]] == [["first"], ["second"], ["third"]]
    assert sum(row["share"] for row in rows["convolutions"]) == pytest.approx(1)
    assert "x86-64-v3" in rows["convolutions"][0]["targets"] and rows["skipped"] == []
    assert cli.main(["list", source, "--dim", "H=3", "--dim", "W=3", "--batch", "1", str(path)]) == 0
    out, err = capsys.readouterr()
    header, *lines = out.splitlines()
    assert header.endswith("in the bundle") and all(line.endswith(" no") for line in lines)
    assert err == f"{source}: 3 convolutions, 3 kernels\n"


def test_strict_and_what_is_left_free(
    built: tuple[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, _ = built
    assert cli.main(["build", source, "-o", str(tmp_path / "c")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "x[2] (H)" in err and "--shape x=1x16x256x256" in err and "(2 more like it)" in err
    proto = chain()
    proto.graph.node.append(helper.make_node("ConvInteger", ["x", "x"], ["i"], name="integers"))
    mixed = save(proto, tmp_path)
    arguments = ["list", mixed, "--shape", "x=1x16x9x9"]
    assert cli.main(arguments) == 0
    err = capsys.readouterr().err
    assert "4 convolutions, 3 kernels, 1 skipped" in err and "skipped: ConvInteger node 'integers'" in err
    assert cli.main([*arguments, "--no-skip"]) == 2
    assert "without --no-skip it is skipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--inputs", "absent.npz"], "cannot read absent.npz"),
        (["--inputs", "x"], "give a file from numpy.savez"),
        (["--inputs", "x=many"], "give a file from numpy.savez"),
        (["--inputs", "y=1"], "no input 'y'"),
        (["--dim", "H=9", "--dim", "H=8", "--shape", "x=1x16x9x9", "--shape", "x=1x16x8x8", "--shape", "x=1x16x7x7"], "equally often"),
    ],
)  # fmt: skip
def test_bad_options(
    arguments: list[str], words: str, built: tuple[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["list", built[0], *arguments]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--shape=x=1xN", "--shape=x=", "--dim=9", "--dim=H=-1", "--shapes=guess"])
def test_bad_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["list", "m.onnx", option])
    assert stopped.value.code == 2 and "usage: tvmconv" in capsys.readouterr().err
