"""The benchmark of the zoo: its networks, file, tables and arguments; and one small network through all of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")  # whose networks it prepares

from benchmarks import zoo, zoo_report
from benchmarks.report import between
from benchmarks.result_files import resume, write_result
from benchmarks.zoo_contenders import Operator
from benchmarks.zoo_results import ZooResult, ZooRow, losses_first, read_result
from tvmconv.errors import SourceError
from tvmconv.measuring.timing import Timing

ROOT = Path(__file__).parents[2]
KERNEL, SOFTMAX, SLICE = (
    Operator("conv2d-n1", True, 3, 6e-3, 10**6),
    Operator("fused_softmax2", False, 2, 1e-3, 10**6),
    Operator("strided_slice", False, 1, 3e-3, 3 * 10**6),
)


def row(network: str, ours: float | None, **peers: float) -> ZooRow:
    return ZooRow(
        network=network,
        kind="speech",
        ours=None if ours is None else Timing(ours, ours, 9),
        peers={name: Timing(seconds, seconds, 9) for name, seconds in peers.items()},
        unsupported={"onnxruntime": "it has no bf16"} if ours else {"tvmconv": "it lacks an operator"},
        errors={"tvmconv": 1e-6},
        operators=(KERNEL, SLICE, SOFTMAX) if ours else (),
        date="2026-11-22T12:00:00+00:00",
        load=0.25,
    )


RESULT = ZooResult(
    machine="a machine",
    versions={"torch": "2.13.0", "timm": "1.0.31"},
    dtype="bf16",
    threads=1,
    rounds=3,
    seconds=0.5,
    rows=(
        row("fast", 1.0, openvino=2.0, pytorch=3.0),
        row("slow", 2.0, openvino=1.0),
        row("lacking", None, pytorch=1.0),
    ),
)


def test_time_without_the_algebra_is_kept_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (replace(RESULT.rows[0], written=Timing(3.0, 3.0, 9)), *RESULT.rows[1:])
    write_result(replace(RESULT, rows=rows), tmp_path / "zoo.json")
    found = read_result(tmp_path / "zoo.json")
    assert found.rows == rows
    zoo._print(found)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[0][:4] == ["network", "tvmconv", "as_written", "joined"]
    assert lines[3][:4] == ["fast", "1000.00", "3000.00", "3.00"]


def test_ratios_are_of_the_fastest_peer_and_losses_come_first() -> None:
    assert [(each.network, each.fastest, each.ratio) for each in losses_first(RESULT.rows)] == [
        ("lacking", "pytorch", None),
        ("slow", "openvino", 0.5),
        ("fast", "openvino", 2.0),
    ]


def test_a_file_keeps_what_was_measured_alike(tmp_path: Path) -> None:
    path, empty = tmp_path / "result.json", replace(RESULT, rows=())
    assert resume(path, empty, read_result) == empty
    write_result(RESULT, path)
    assert read_result(path) == RESULT
    again = resume(path, empty, read_result).with_row(row("fast", 4.0))
    assert [each.network for each in again.rows] == ["fast", "slow", "lacking"]
    with pytest.raises(SourceError, match=r"measured with seconds 0\.5, which is 2 now"):
        resume(path, replace(empty, seconds=2), read_result)


def test_tables_show_what_was_and_was_not_computed() -> None:
    text = zoo_report.report([RESULT, replace(RESULT, dtype="f32")])
    assert text.index("### f32, a machine") < text.index("### bf16, a machine")
    for line in (
        "| bf16, a machine | 2 | 1.00 | 0.50 (slow) | 1 | 1 | 1 |",
        "| slow | speech | 2000.00 |  | **1000.00** | 0.50 | 0.50 | 40 % | slices, pads and rolls 3.00, softmax 1.00 |",
        "| slices, pads and rolls | 2 | 6.0 | 30.0 % | 1.0 |",
        "- lacking, tvmconv: it lacks an operator",
    ):
        assert line in text
    assert zoo_report.report([]) == "No results are committed yet."


def test_the_page_shows_the_committed_results() -> None:
    results = [read_result(path) for path in sorted((ROOT / "benchmarks/results/zoo").glob("*/*.json"))]
    document = (ROOT / "benchmarks/results/zoo.md").read_text()
    command = "python -m benchmarks.zoo_report benchmarks/results/zoo/*/*.json --update benchmarks/results/zoo.md"
    text = zoo_report.report(results)
    assert document == between(document, text, "benchmarks/results/zoo.md", zoo_report.MARKERS), f"run {command}"


def test_there_are_sixty_networks_of_all_kinds() -> None:
    zoo_networks = pytest.importorskip("benchmarks.zoo_networks", exc_type=ImportError)
    kinds = {network.kind for network in zoo_networks.NETWORKS.values()}
    assert len(zoo_networks.NETWORKS) >= 60
    assert kinds == {
        "classification",
        "detection backbone",
        "segmentation",
        "speech",
        "vocoder",
        "separation",
        "diffusion",
        "restoration",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--threads", "0"], "--threads is 0: give 1 or more"), (["--prepare"], "give --folder with it")],
)
def test_arguments_that_mean_nothing_are_refused(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    zoo = pytest.importorskip("benchmarks.zoo", exc_type=ImportError)
    with pytest.raises(SystemExit):
        zoo.main(arguments)
    assert message in capsys.readouterr().err


def test_an_unknown_network_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    zoo = pytest.importorskip("benchmarks.zoo", exc_type=ImportError)
    assert zoo.main(["--only", "resnet51"]) == 1
    assert "there is no network 'resnet51'; allowed: alexnet, " in capsys.readouterr().err


def test_a_contender_whose_answer_is_wrong_or_that_has_no_file_takes_no_part(tmp_path: Path) -> None:
    np = pytest.importorskip("numpy")
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from benchmarks.zoo_contenders import ONNXRUNTIME, OPENVINO, OURS, Task, measure

    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["input0"], ["y"])], "one", [value("input0", 1, [3])], [value("y", 1, [3])]
    )
    onnx.save(onnx.helper.make_model(graph, ir_version=10, opset_imports=[onnx.helper.make_opsetid("", 20)]), tmp_path / "model.onnx")  # fmt: skip
    (tmp_path / "openvino.xml.why").write_text("ValueError: no such operator")
    np.savez(tmp_path / "inputs.npz", np.array([-1, 0, 2], np.float32))
    task = Task("one", ONNXRUNTIME, "f32", str(tmp_path), 1, 0.01)
    for expected, reason in (([0, 0, 2], ""), ([0, 0, 3], "wrong answer"), ([0, 2], "wrong answer")):
        np.savez(tmp_path / "expected.npz", np.array(expected, np.float32))
        task = replace(task, network=str(expected))  # what is ready is kept by its name
        assert measure(task).unsupported.startswith(reason) and bool(measure(task).samples) == (not reason)
    (tmp_path / "network-f32.so").write_bytes(b"half")
    assert (
        "is no network that tvmconv compile wrote: it is too short"
        in measure(replace(task, contender=OURS)).unsupported
    )
    assert measure(replace(task, contender=OPENVINO)).unsupported == "ValueError: no such operator"
    assert "has no convolution of bf16" in measure(replace(task, dtype="bf16")).unsupported
