"""Real models, whole: each convolution by a compiled kernel, compared with onnxruntime's answer node by node."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from shipped import LARGE, MODELS, PARAMETERS, Shipped

import tvmconv
from tvmconv import cli
from tvmconv.building.filters import add_filters
from tvmconv.epilogue import Step, format_epilogue
from tvmconv.frontends import read_model
from tvmconv.frontends.onnx.graph import convolutions, declared_inputs, inputs_of
from tvmconv.frontends.shapes import bind, make_buckets
from tvmconv.problem import Problem

onnxruntime = pytest.importorskip("onnxruntime")
SIGMOID_ERROR = 2e-7  # of onnxruntime, absolute: it gives 0 for 1e-22


@pytest.mark.parametrize("name", MODELS)
def test_every_convolution_that_runs_is_read(name: str) -> None:
    model = MODELS[name].read(with_constants=True)
    places = {node.name for node in model.nodes}
    assert (len(places) + len(model.skipped), len(model.skipped)) == MODELS[name].counts[::2]
    assert all("did not run" in each.reason for each in model.skipped)
    assert all(node.constants is not None for node in model.nodes)
    assert len(MODELS[name].read(fuse=False).problems()) == MODELS[name].counts[1]
    epilogues = Counter(format_epilogue(node.problem.epilogue) for node in model.nodes)
    assert epilogues == MODELS[name].epilogues


@pytest.mark.parametrize("name", MODELS)
def test_one_command_says_so(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", MODELS[name].path(), *shlex.split(MODELS[name].command), "--no-fuse"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 1 + MODELS[name].counts[1]
    assert MODELS[name].read(fuse=False).summary() in err


def bundle_of(name: str, build_once: Callable[[str, list[Problem]], Path], fuse: bool = True) -> Path:
    """Return a bundle with a model's kernels; the small models have most of theirs in common."""
    names = [name] if name in LARGE else [each for each in MODELS if each not in LARGE]
    problems = [problem for each in names for problem in MODELS[each].read(with_constants=True, fuse=fuse).problems()]
    kind = f"{name if name in LARGE else 'small'}{'' if fuse else '-alone'}"
    return build_once(f"shipped-{kind}", list(dict.fromkeys(problems)))


def feeds_of(shipped: Shipped, proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return inputs such as the model gets: small numbers, bytes, zero states, the sampling rate."""
    options = dict(shipped.options)
    given = options.pop("inputs", {})
    (bucket,) = make_buckets(options.get("shapes"), None, options.get("batch"))
    bound = bind(declared_inputs(proto.graph), bucket, shipped.file)
    rng, feeds = np.random.default_rng(0), {}
    for value in inputs_of(proto.graph):
        dtype, shape = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), bound[value.name]
        if value.name == "sr":
            feeds[value.name] = given.get("sr", np.array(16000)).astype(dtype)
        elif np.issubdtype(dtype, np.integer):
            feeds[value.name] = rng.integers(0, 256, shape).astype(dtype)
        else:
            feeds[value.name] = rng.standard_normal(shape).astype(dtype)
    return feeds


def watched(proto: onnx.ModelProto, tensors: dict[str, list[str]]) -> tuple[onnx.ModelProto, dict[str, list[str]]]:
    """Return a copy that also gives the data of convolutions and these tensors of each, and the names they have there.

    Those in a branch of an If become outputs of the If; the branch that did not run gives an empty one.
    """
    copy = type(proto)()
    copy.CopyFrom(proto)
    names: dict[str, list[str]] = {}
    for place in convolutions(copy):
        if place.name not in tensors:
            continue
        wanted = [place.node.input[0], *tensors[place.name]]
        names[place.name] = [f"watched.{place.number}.{i}" for i in range(len(wanted))]
        for tensor, name in zip(wanted, names[place.name], strict=True):
            declared = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
            place.graphs[-1].node.append(helper.make_node("Identity", [tensor], [name]))
            place.graphs[-1].output.append(declared)
            for graph, node in zip(reversed(place.graphs[:-1]), reversed(place.inside), strict=True):
                node.output.append(name)
                graph.output.append(declared)
                (other,) = (a.g for a in node.attribute if name not in [output.name for output in a.g.output])
                empty = helper.make_tensor(name, TensorProto.FLOAT, [0], [])
                other.node.append(helper.make_node("Constant", [], [name], value=empty))
                other.output.append(declared)
    return copy, names


@pytest.mark.parametrize("name", PARAMETERS)
def test_whole_model(name: str, build_once: Callable[[str, list[Problem]], Path], tmp_path: Path) -> None:
    """onnxruntime runs the model; what it fed each convolution, ours gets, with the filters that the bundle has."""
    shipped = MODELS[name]
    model = shipped.read(with_constants=True)
    path = shutil.copytree(bundle_of(name, build_once), tmp_path / "bundle")
    add_filters(path, [model])
    bundle = tvmconv.load(path)
    proto = onnx.load(shipped.path())
    tensors = {
        node.name: [node.constants().output, *([node.residual] if node.residual else [])]
        for node in model.nodes
        if node.constants
    }
    copy, names = watched(proto, tensors)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(copy.SerializeToString(), options, providers=["CPUExecutionProvider"])
    everything = [each for found in names.values() for each in found]
    seen = dict(zip(everything, session.run(everything, feeds_of(shipped, proto)), strict=True))
    assert len(names) == shipped.counts[0] - shipped.counts[2]
    for node, (data, expected, *residual) in ((node, [seen[each] for each in found]) for node, found in names.items()):
        assert expected.any()
        output = bundle.node(node)(data, residual=residual[0] if residual else None)
        assert output.shape == expected.shape
        ends = bundle.node(node).problems[0].epilogue[-1:]
        slack = SIGMOID_ERROR * np.sqrt(expected.size) if ends == (Step("sigmoid"),) else 0
        assert np.linalg.norm(output - expected) <= 1e-5 * np.linalg.norm(expected) + slack, node


@pytest.mark.parametrize("name", ["vad_openvino", "magika", pytest.param("yolov8n", marks=pytest.mark.slow)])
def test_openvino_ir_of_it_is_the_same(
    name: str, build_once: Callable[[str, list[Problem]], Path], tmp_path: Path
) -> None:
    """The IR that OpenVINO converts it to has the same signatures without fusion, and its filters give the same answers."""
    openvino = pytest.importorskip("openvino")
    shipped = MODELS[name]
    model = shipped.read(with_constants=True, fuse=False)
    source = tmp_path / "model.xml"
    openvino.save_model(openvino.convert_model(shipped.path()), source, compress_to_fp16=False)
    converted = read_model(str(source), **shipped.options, with_constants=True, fuse=False)
    assert Counter(node.problem for node in converted.nodes) == Counter(node.problem for node in model.nodes)
    path = shutil.copytree(bundle_of(name, build_once, fuse=False), tmp_path / "bundle")
    add_filters(path, [model, converted])
    bundle = tvmconv.load(path)
    for node in model.nodes:
        # The names that OpenVINO gives differ; which node is which, the filters tell.
        filter_ = node.constants().filter
        alike = [other for other in converted.nodes if other.problem == node.problem]
        distances = [np.linalg.norm(other.constants().filter - filter_) for other in alike]
        assert min(distances) <= 1e-6 * np.linalg.norm(filter_)
        data = np.random.default_rng(0).standard_normal(node.problem.data_shape).astype(np.float32)
        expected = bundle.node(node.name, Path(shipped.file).name)(data)
        output = bundle.node(alike[int(np.argmin(distances))].name, "model.xml")(data)
        assert np.linalg.norm(output - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.slow
def test_the_documents_call_a_layer(build_once: Callable[[str, list[Problem]], Path], tmp_path: Path) -> None:
    """The example of docs/models.md runs as it stands, on the bundle that its command builds."""
    page = (Path(__file__).parents[2] / "docs/models.md").read_text()
    (command,) = re.findall(r"^    tvmconv build ch_PP-OCRv4_det_infer.onnx (.*) -o detector.bundle$", page, re.M)
    assert command == f"{MODELS['detector'].command} --with-filters"
    (code,) = [each for each in re.findall(r"```py\n(.*?)```", page, re.DOTALL) if "detector.bundle" in each]
    model = MODELS["detector"].read(with_constants=True)
    add_filters(shutil.copytree(bundle_of("detector", build_once), tmp_path / "detector.bundle"), [model])
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "<tvmconv.Node p2o.Conv.0 of ch_PP-OCRv4_det_infer.onnx> (1, 16, 320, 320)\n"
