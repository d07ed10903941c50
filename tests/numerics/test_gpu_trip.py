"""What a machine with a GPU and without the compiler is given, as far as it goes without one."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_cuda import SIGNATURE, compile_driver, compile_kernel, machine_with
from gpu_kernels import Made

import tvmconv
from benchmarks import gpu_check
from benchmarks.gpu_candidates import Carried, build_ahead
from benchmarks.gpu_tune import measure_carried
from benchmarks.gpu_tuned import write_tuned
from tvmconv import fills, reference
from tvmconv.errors import ReplayError, SourceError, UnsupportedMachineError
from tvmconv.fleet.protocol import target_to_text
from tvmconv.measuring.race import Built
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Records
from tvmconv.tuning.search import Candidate

ROOT = Path(__file__).parents[2]
PROBLEM = parse_signature("conv2d-n1-i16x6x6-o16x6x6-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32")
CAUSAL = "conv3d-n1-i8x3x5x6-o4x3x5x6-k3x3x3-s1x1x1-d1x1x1-p2x1x1_0x1x1-g1-{}-f32-bias"


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> Carried:
    """A few candidates of a problem for this CPU, which stands in for a GPU."""
    folder = tmp_path_factory.mktemp("candidates")
    made = build_ahead([PROBLEM], Target.parse("x86-64-v3"), 3, folder, Records(folder / "none"), "", "default")
    assert made == 3 == len(list(folder.glob("*.so")))
    return Carried(folder)


@pytest.mark.slow  # 50 s; run by .ci/full
@pytest.mark.filterwarnings("ignore:.*others used the processors")
def test_candidates_are_measured_and_recorded_without_the_compiler(carried: Carried, tmp_path: Path) -> None:
    records = Records(tmp_path / "records", shipped=False)
    (result,) = measure_carried(carried, 60, records)
    assert result.trials == 3 and not result.failures and result.record is not None
    assert result.record.candidate in carried.candidates(PROBLEM)
    assert result.record.tools == carried.tools and result.record.target == "x86-64-v3"
    assert records.best(PROBLEM, carried.target) == result.record
    assert write_tuned(carried, records, tmp_path / "tuned.bundle") == 1
    kernel = tvmconv.load(tmp_path / "tuned.bundle").lookup(PROBLEM, "cpu")
    arrays, expected = fills.exact_case(PROBLEM)
    assert kernel.info.origin == "tuned"
    np.testing.assert_array_equal(kernel(*arrays), expected)


def test_the_search_goes_on_from_what_was_measured(carried: Carried, tmp_path: Path) -> None:
    """The next folder holds other candidates, and those that the next race compares with them."""
    records = Records(tmp_path / "records", shipped=False)
    first = carried.candidates(PROBLEM)
    log = records.folder / "x86-64-v3" / "trials" / f"{tvmconv.format_signature(PROBLEM)}.jsonl"
    log.parent.mkdir(parents=True)
    log.write_text("".join(json.dumps(_trial(each, 1e-6 * n)) + "\n" for n, each in enumerate(first, 1)))
    (tmp_path / "next").mkdir()
    build_ahead([PROBLEM], carried.target, 2, tmp_path / "next", records, "some card", "default")
    following = Carried(tmp_path / "next").candidates(PROBLEM)
    assert set(first) <= set(following) and len(following) == len(first) + 2


def _trial(candidate: Candidate, seconds: float) -> dict[str, Any]:
    return {**asdict(candidate), "version": 1, "status": "ok", "seconds": seconds, "detail": "", "machine": "some card"}


def test_what_was_not_built_fails(carried: Carried) -> None:
    first = carried.candidates(PROBLEM)[0]
    assert isinstance(carried.library(PROBLEM, first), Built)
    other = carried.library(PROBLEM, Candidate(first.algorithm, 99, ()))
    assert isinstance(other, ReplayError) and "none of those that were built before" in str(other)


def test_a_folder_without_candidates_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"has no candidates\.json .*benchmarks\.gpu_prepare"):
        Carried(tmp_path)


def test_a_machine_that_cannot_run_them_is_told(carried: Carried, tmp_path: Path) -> None:
    index = json.loads((carried.folder / "candidates.json").read_text())
    index["target"] = target_to_text(Target.parse("cuda:sm_90"))
    (tmp_path / "candidates.json").write_text(json.dumps(index))
    with (
        machine_with(tmp_path / "none.so"),
        pytest.raises(UnsupportedMachineError, match="cuda:sm_90 cannot be tuned here"),
    ):
        measure_carried(Carried(tmp_path), 1, Records(tmp_path))


def test_a_kernel_that_crashes_ends_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = compile_driver(tmp_path)
    monkeypatch.setenv("LD_LIBRARY_PATH", os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]))
    kinds = {"wrong": ["-DWRONG=1"], "crashed": ["-DBIAS=1"], "right": []}
    for name, macros in kinds.items():
        compile_kernel(tmp_path / f"{name}.so", *macros)
    made = [Made(SIGNATURE, name, "cuda:sm_90", f"{name}.so", "tvmconv_kernel", 0, "exact") for name in kinds]
    (tmp_path / "kernels.json").write_text(json.dumps([asdict(each) for each in made]))
    with machine_with(path):
        verdicts = list(gpu_check.check(tmp_path))
    assert [verdict["status"] for verdict in verdicts] == list(kinds)
    assert "outputs differ" in verdicts[0]["detail"] and not verdicts[2]["detail"]


@pytest.mark.parametrize("layout", ["NXC-XIO", "NCX-OIX"])
@pytest.mark.parametrize("memory_format", ["channels_last", "contiguous"])
def test_causal_padding_for_pytorch(layout: str, memory_format: str) -> None:
    torch = pytest.importorskip("torch")
    from benchmarks import gpu_cudnn

    problem = parse_signature(CAUSAL.format(layout))
    arrays = fills.exact_fill(problem)
    tensors = tuple(map(torch.from_numpy, arrays))
    answer = gpu_cudnn.in_layout(gpu_cudnn.prepare(problem, tensors, memory_format)(), problem)
    np.testing.assert_array_equal(answer.numpy(), reference.compute(problem, *arrays))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "usage"),
        (["--stage", "everything", "out"], "usage"),
        (["--from"], "usage"),
        (["--from", "/there/is/none", "out"], "/there/is/none"),
        (["out", "5", "6"], "usage"),
        (["--from", ".", "--stage", "tune", "out"], "has no code.tar.xz"),
    ],
)
def test_gpu_sh_refuses(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = subprocess.run([ROOT / "benchmarks/gpu.sh", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and words in done.stderr and not list(tmp_path.rglob("*.*"))
