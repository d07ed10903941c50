"""Races of a provider's networks: wrong answers, answers that cannot be compared, and the parts that stay."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from models import model, save, value
from onnx import TensorProto, helper, numpy_helper

from tvmconv import cli
from tvmconv.errors import InputError
from tvmconv.exporting.provider_library import export_provider
from tvmconv.measuring.timing import Timing
from tvmconv.onnxruntime import racing
from tvmconv.onnxruntime.racing import RaceResult, race, race_parts

X = value("x", (3, 8))
sequence = helper.make_tensor_sequence_value_info


def halves() -> onnx.ModelProto:
    nodes = [helper.make_node("SplitToSequence", ["x"], ["y"], axis=0)]
    return model(nodes, [X], [sequence("y", TensorProto.FLOAT, None)])


def named() -> onnx.ModelProto:
    """Return a model of one map for each row."""
    nodes = [helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=list(range(8)))]
    maps = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    made = model(nodes, [X], [helper.make_value_info("y", helper.make_sequence_type_proto(maps))])
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    return made


def chosen() -> onnx.ModelProto:
    return model([helper.make_node("NonZero", ["x"], ["y"])], [X], [value("y", (2, None), TensorProto.INT64)])


def negative() -> onnx.ModelProto:
    return model([helper.make_node("Neg", ["x"], ["y"])], [X], [value("y", (3, 8))])


def greatest() -> onnx.ModelProto:
    nodes = [helper.make_node("ArgMax", ["x"], ["y"], axis=1)]
    return model(nodes, [X], [value("y", (3, 1), TensorProto.INT64)])


class Session:
    """onnxruntime's own, with other answers, in the place of one that has a network."""

    def __init__(self, path: str, change: Callable[[Any], Any]) -> None:
        self._own, self._change = ort.InferenceSession(path, providers=["CPUExecutionProvider"]), change
        self.get_outputs = self._own.get_outputs

    def run(self, names: Sequence[str] | None, feeds: dict[str, np.ndarray]) -> list[Any]:
        return [self._change(each) for each in self._own.run(names, feeds)]


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a library that computes nothing."""
    return export_provider(None, tmp_path_factory.mktemp("provider") / "graphs.so")


@pytest.mark.parametrize(
    ("make", "change", "refused", "unchecked"),
    [
        (negative, lambda y: y, "", False),
        (negative, lambda y: y[:2], "its answers are off by inf", False),
        (greatest, lambda y: y + 1, "its answers are off by 1", False),
        (halves, lambda y: y, "", False),
        (halves, lambda y: [*y[:-1], -y[-1]], "its answers are off by 2", False),
        (halves, lambda y: y[:-1], "", True),
        (named, lambda y: y, "", False),
        (named, lambda y: [*y[:-1], {**y[-1], 7: 9.0}], "its answers are off by", False),
        (named, lambda y: [*y[:-1], {}], "", False),  # the other maps are compared
        (chosen, lambda y: y[::-1], "", True),
        (chosen, lambda y: y[:, :2], "", True),
    ],
)
def test_answers(
    make: Callable[[], onnx.ModelProto],
    change: Callable[[Any], Any],
    refused: str,
    unchecked: bool,
    provider: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    path = save(make(), tmp_path)
    monkeypatch.setattr(racing, "session", lambda *_, **__: Session(path, change))
    monkeypatch.setattr(racing, "time_call", lambda *_: Timing(1.0, 1.0, 1))
    found = race(path, provider, claims=("nothing", "network"))
    assert found.refused.startswith(refused)
    assert bool(found.refused) == bool(refused)
    assert found.unchecked == unchecked
    assert ("network" in found.seconds) == (not refused)


def test_parts_that_make_it_slower_within_noise_stay(monkeypatch: pytest.MonkeyPatch):
    seconds = {1: 2.09, 2: 2.11, 3: 1.0}

    def timed(*_: object, networks: Sequence[int], **__: object) -> RaceResult:
        return RaceResult(
            {"nothing": 2.0, "network": sum(seconds[each] for each in networks)},
            tuple((0, each) for each in networks),
        )

    monkeypatch.setattr(racing, "race", timed)
    everything = RaceResult({"nothing": 2.0, "network": 1.5}, ((0, 1), (0, 2), (0, 3)))
    found, alone = race_parts("m.onnx", "p.so", everything)
    assert [identity for _, identity in found.graphs] == [1, 3]
    assert list(alone) == [1, 2, 3]


def test_integers_are_in_range() -> None:
    nodes = [helper.make_node("Gather", ["table", "words"], ["a"]), helper.make_node("Gather", ["row", "kinds"], ["b"])]
    nodes.append(helper.make_node("Add", ["a", "b"], ["y"]))
    inputs = [value(name, (3,), TensorProto.INT64) for name in ("words", "kinds")]
    tables = [numpy_helper.from_array(np.ones((rows, 2), np.float32), n) for n, rows in (("table", 4), ("row", 1))]
    made = model(nodes, inputs, [value("y", (3, 2))], weights=tables)
    alone = ort.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    ones = {each.name: racing._array(each, None, None, np.random.default_rng(0)) for each in alone.get_inputs()}
    found = racing._put_in_range(alone, ones, {})
    assert (found["words"] == 1).all() and (found["kinds"] == 0).all()
    assert racing._put_in_range(alone, ones, {"kinds": np.ones(3)}) == ones
    with pytest.raises(InputError, match=r"the input words is int64, which cannot hold"):
        racing._array(alone.get_inputs()[0], None, np.array(1.5), np.random.default_rng(0))


def test_the_command_says_that_nothing_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("NonZero", ["m"], ["y"])]
    weights = [onnx.numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")]
    path = save(model(nodes, [X], [value("y", (2, None), TensorProto.INT64)], weights), tmp_path)
    monkeypatch.setattr(racing, "time_call", lambda *_: Timing(1.0, 1.0, 1))
    assert cli.main(["export-onnxruntime", path, "-o", str(tmp_path / "p.so")]) == 0
    said = capfd.readouterr().err
    assert said.count("its network's answers were not compared with onnxruntime's: numbers decide the shapes") == 1


def saturating() -> onnx.ModelProto:
    """Return a quantized product, of which onnxruntime's optimizations saturate sums in 16 bits where a CPU lacks VNNI."""
    numbers = {
        "s": np.float32(1),
        "z": np.uint8(0),
        "w": np.full((8, 4), 127, np.int8),
        "t": np.float32(1),
        "v": np.int8(0),
    }
    numbers |= {"r": np.float32(2000)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["a"]),
        helper.make_node("DequantizeLinear", ["a", "s", "z"], ["b"]),
        helper.make_node("DequantizeLinear", ["w", "t", "v"], ["c"]),
        helper.make_node("MatMul", ["b", "c"], ["d"]),
        helper.make_node("QuantizeLinear", ["d", "r", "z"], ["e"]),
        helper.make_node("DequantizeLinear", ["e", "r", "z"], ["y"]),
    ]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()]
    return model(nodes, [X], [value("y", (3, 4))], weights=weights)


@pytest.mark.parametrize(("times", "is_refused"), [(1, False), (3, True)])
def test_quantized_answers_are_those_without_optimizations(
    times: int, is_refused: bool, provider: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path, plain = save(saturating(), tmp_path), ort.SessionOptions()
    plain.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL

    def network(*_: Any, **__: Any) -> Session:
        made = Session(path, lambda y: times * y)
        made._own = ort.InferenceSession(path, plain, providers=["CPUExecutionProvider"])
        return made

    monkeypatch.setattr(racing, "session", network)
    monkeypatch.setattr(racing, "time_call", lambda *_: Timing(1.0, 1.0, 1))
    monkeypatch.setattr(racing, "_array", lambda *_: np.full((3, 8), 255, np.float32))
    found = race(path, provider, claims=("nothing", "network"))
    assert found.refused.startswith("its answers are off by") == is_refused
