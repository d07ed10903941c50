"""Finding NVIDIA's compiler, and saying what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tvmconv.algorithms.cuda import blocks, tiles
from tvmconv.errors import ToolchainError
from tvmconv.lowering.cuda import nvcc
from tvmconv.targets import cuda
from tvmconv.targets.cuda import CudaTarget

SM_90 = CudaTarget.parse("cuda:sm_90")
SM_100 = CudaTarget.parse("cuda:sm_80,sm_100")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """No nvcc anywhere."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    monkeypatch.setattr(nvcc, "_USUAL_HOME", str(tmp_path / "usual"))
    monkeypatch.setattr(nvcc, "_PACKAGE", "no-such-package")
    return monkeypatch


def _toolkit(home: Path, release: str, exit_code: int = 0) -> Path:
    """Make an nvcc that says it is of `release`, and fails otherwise with `exit_code`."""
    path = home / "bin" / "nvcc"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && echo "Cuda compilation tools, release {release}, V{release}.1" && exit\n'
        f"echo 'kernel.cu(1): error: not today' >&2\nexit {exit_code}\n"
    )
    path.chmod(0o755)
    return path


def test_none(nowhere: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ToolchainError, match=r"(?s)there is no nvcc.*install NVIDIA's CUDA toolkit.*pip install 'tvmconv\[cuda\]'"
    ):
        nvcc.check_nvcc(SM_90)


@pytest.mark.parametrize("variable", ["CUDA_HOME", "CUDA_PATH"])
def test_where_variables_say(nowhere: pytest.MonkeyPatch, tmp_path: Path, variable: str) -> None:
    path = _toolkit(tmp_path / "toolkit", "12.4")
    nowhere.setenv(variable, str(tmp_path / "toolkit"))
    assert nvcc.check_nvcc(SM_90) == str(path)


def test_in_the_usual_place(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = _toolkit(tmp_path / "usual", "12.4")
    assert nvcc.check_nvcc(SM_90) == str(path)


def test_too_old_for_an_architecture(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = _toolkit(tmp_path / "usual", "12.4")
    with pytest.raises(ToolchainError) as caught:
        nvcc.check_nvcc(SM_100)
    said = str(caught.value)
    assert f"{path} is of CUDA 12.4, and cuda:sm_80,sm_100 needs 12.8 or later" in said
    assert "install" in said and "leave an architecture out" in said


def test_a_later_one_is_taken_if_the_first_is_too_old(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv("PATH", f"{_toolkit(tmp_path / 'old', '9.2').parent}:/usr/bin:/bin")
    later = _toolkit(tmp_path / "usual", "12.10")  # later than 12.8
    assert nvcc.check_nvcc(SM_100) == str(later)


def test_one_that_says_no_release(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _toolkit(tmp_path / "usual", "unknown")
    with pytest.raises(ToolchainError, match="--version names no release"):
        nvcc.check_nvcc(SM_90)


def test_one_that_cannot_be_run(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _toolkit(tmp_path / "usual", "13.0").write_text("#!/no/such/shell\n")
    with pytest.raises(ToolchainError, match="cannot be run: No such file or directory"):
        nvcc.check_nvcc(SM_90)


def test_one_that_fails(nowhere: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nowhere.setenv("PATH", "/usr/bin:/bin")
    nowhere.setenv("CUDA_HOME", str(_toolkit(tmp_path / "toolkit", "13.0", exit_code=2).parents[1]))
    nowhere.setattr(nvcc.shutil, "which", lambda name: None)
    with pytest.raises(ToolchainError, match=r"(?s)nvcc failed \(.*error: not today.*apt install g\+\+"):
        nvcc.compile_fatbin("", SM_90)


def test_every_architecture_is_in_every_table() -> None:
    known = cuda._SHARED_BYTES.keys()
    assert nvcc._SINCE.keys() == blocks.MULTIPROCESSORS.keys() == tiles._RATE.keys() == known
