"""Tuning, verifying and timing on a GPU that is none: the driver is a fake, kernels run on the host. Times mean nothing."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm_ffi
from fake_candidates import MACHINE
from fake_cuda import SIGNATURE, Array, compile_driver, compile_kernel, machine_with, write_cuda_bundle

from tvmconv import cli, fills
from tvmconv.building.bench import bench
from tvmconv.errors import ReplayError, UnsupportedMachineError
from tvmconv.measuring.cuda_measure import measure
from tvmconv.measuring.cuda_timing import LaunchGraph, array_sets, launches, new_stream
from tvmconv.measuring.race import Built
from tvmconv.runtime.cuda.memory import DeviceArray
from tvmconv.runtime.verify import verify
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.machine import tuning_machine
from tvmconv.tuning.problem_tuner import Session
from tvmconv.tuning.records import Records
from tvmconv.tuning.search import Candidate, Sketch, Space
from tvmconv.tuning.tasks import Compile, Describe
from tvmconv.tuning.tuner import tune, tune_all

PROBLEM = parse_signature(SIGNATURE)
TARGET = Target.parse("cuda:sm_80,sm_90")
RIGHT, WRONG, CRASHES, FAILS = range(4)
SPACE = Space("cuda_direct", 1, "exact", (Sketch(((RIGHT, WRONG, CRASHES, FAILS), (0, 1)), (RIGHT, 0)),))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A machine with a fake GPU, in this process and in those it starts."""
    path = compile_driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]))
    with machine_with(path) as driver:
        yield driver


def work(task: Describe | Compile) -> Any:
    """Stand in for `tvmconv.tuning.trial_library.work`."""
    if isinstance(task, Describe):
        return [SPACE]
    return _compile(task.candidate, task.library)


def _compile(candidate: Candidate, path: str) -> Built | ReplayError:
    kind, _ = candidate.decisions
    if kind == FAILS:
        return ReplayError("this one does not compile")
    compile_kernel(Path(path), f"-DWRONG={int(kind == WRONG)}", f"-DBIAS={int(kind == CRASHES)}")
    return Built(path)


def test_tuning(machine: Any, tmp_path: Path) -> None:
    records = Records(tmp_path / "records")
    with Evaluator(jobs=2, threads=1, work=work, measure=measure) as evaluator:
        session = Session(evaluator, TARGET, records, MACHINE, 0)
        with pytest.warns(UserWarning, match="is rejected"):
            (result,) = tune_all(session, [PROBLEM], 8, None, None)
    assert result.trials == 8 and result.record is not None and result.record.decisions[0] == RIGHT
    states = sorted((trial.status, trial.candidate.decisions[0]) for trial in result.failures)
    # A kernel that the launcher refuses ends the process as one that the GPU does not survive would.
    assert states == sorted([("wrong", WRONG), ("crashed", CRASHES), ("failed", FAILS)] * 2)
    folder = tmp_path / "records" / "cuda-sm_80-sm_90"
    assert (folder / "records.jsonl").is_file() and (folder / "trials" / f"{SIGNATURE}.jsonl").is_file()
    assert Records(tmp_path / "records").best(PROBLEM, TARGET) == result.record


def test_the_label_names_the_card(machine: Any) -> None:
    assert tuning_machine(TARGET).label == "Fake 0 (sm_90, driver for CUDA 13.0)"


@pytest.mark.parametrize(
    ("architectures", "why"), [(None, "no NVIDIA driver"), ("75", r"cuda:0 \(Fake 0, sm_75\) is older than the code")]
)
def test_tuning_needs_a_gpu(tmp_path: Path, architectures: str | None, why: str) -> None:
    driver = compile_driver(tmp_path, architectures) if architectures else tmp_path / "none.so"
    with (
        machine_with(driver),
        pytest.raises(UnsupportedMachineError, match=f"target cuda:sm_80,sm_90 cannot be tuned here: .*{why}"),
    ):
        tune([PROBLEM], TARGET, trials=1, records=Records(tmp_path))


def test_verify_and_bench(machine: Any, tmp_path: Path) -> None:
    bundle = write_cuda_bundle(tmp_path / "bundle", "cuda:sm_90", workspace_bytes=64)
    assert [(verdict.status, verdict.detail) for verdict in verify(bundle)] == [("right", "")]
    (row,) = bench(bundle, seconds=0.001)
    assert row.kind == "cuda" and row.timing.median > 0
    assert (
        cli.main(
            ["report", str(bundle), "-o", str(tmp_path / "r.html"), "--against", str(bundle), "--seconds", "0.001"]
        )
        == 0
    )
    page = (tmp_path / "r.html").read_text()
    assert "Fake 0" in page and "What GPUs can do at most is not measured here" in page and "over 1 kernels" in page


def test_verify_tells_a_wrong_kernel(machine: Any, tmp_path: Path) -> None:
    bundle = write_cuda_bundle(tmp_path / "bundle", "cuda:sm_90", macros=("-DWRONG=1",))
    (verdict,) = verify(bundle)
    assert verdict.status == "wrong" and "outputs differ" in verdict.detail


def test_a_graph_keeps_workspaces(machine: Any, tmp_path: Path) -> None:
    compile_kernel(tmp_path / "kernel.so")
    with new_stream(0) as stream:
        calls = launches(tmp_path / "kernel.so", array_sets(PROBLEM, fills.random_fill(PROBLEM), 0), stream)
        gone = weakref.ref(calls[0])
        graph = LaunchGraph(calls, stream)
        del calls
        assert gone() is not None and graph.sample() > 0
        graph.close()
        del graph
    assert gone() is None


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
def test_device_arrays(machine: Any, dtype: str) -> None:
    content = np.arange(24).reshape(2, 3, 4).astype(fills.numpy_dtype(dtype))
    array = DeviceArray.of(content)
    assert (array.numpy() == content).all()
    tensor = tvm_ffi.from_dlpack(array)
    assert tuple(tensor.shape) == (2, 3, 4) and tensor.data_ptr() == array.address
    assert str(tensor.dtype) == content.dtype.name and tensor.is_contiguous()
    array.fill(0xFF)
    assert np.isnan(array.numpy().astype(np.float32)).all()
    assert Array(content).__dlpack_device__() == array.__dlpack_device__()


def test_device_arrays_live_as_long_as_who_imported_them(machine: Any) -> None:
    array = DeviceArray.of(np.arange(6, dtype=np.float32))
    gone = weakref.ref(array)
    array.__dlpack__()  # nobody imports it
    tensor = tvm_ffi.from_dlpack(array)
    del array
    assert gone() is not None and tensor.data_ptr() == gone().address
    del tensor
    assert gone() is None
