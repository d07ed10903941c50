"""What a run says of tests that this machine cannot run, and runs as another CPU."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tvmconv.isa import native
from tvmconv.isa.x86 import ISA as X86

CONFTEST = Path(__file__).parents[1] / "conftest.py"
# BMI2 is hidden where the package looks, by whatever process: this one, a worker, one that takes nothing of Python's settings.
AS_ANOTHER = """
import subprocess
import sys

import pytest

from tvmconv.isa.machine import cpu_features, missing_features
from tvmconv.runtime.bundle import BundleTarget
from tvmconv.runtime.selection import obstacle
from tvmconv.support.workers import Worker
from tvmconv.targets.target import Target

LOOK = "from tvmconv.isa.machine import cpu_features; print(*cpu_features())"


def test_this_process():
    assert "avx2" in cpu_features() and "bmi2" not in cpu_features()
    assert "bmi2" not in Target.parse("host").features


def test_code_for_it_is_refused():
    assert obstacle(BundleTarget("cpu", Target.parse("x86-64-v3").features)) == "this machine's CPU lacks bmi2"
    assert obstacle(BundleTarget("cpu", Target.parse("x86-64-v3-no-bmi2").features)) is None


@pytest.mark.parametrize("isolated", [[], ["-E", "-s"]])
def test_another_process(isolated):
    path = f"import sys; sys.path[:] = {sys.path}; "
    done = subprocess.run([sys.executable, *isolated, "-c", path + LOOK], capture_output=True, text=True, check=True)
    assert "avx2" in done.stdout.split() and "bmi2" not in done.stdout.split()


def test_a_worker():
    worker = Worker(missing_features, threads=1)
    try:
        assert worker.call(("avx2", "bmi2")) == ("bmi2",)
    finally:
        worker.close()


@pytest.mark.isa("avx2", "bmi2")
def test_marked():
    assert False
"""


def run(folder: Path, *arguments: str, listed: str = "") -> subprocess.CompletedProcess[str]:
    """Run the tests of a folder by this project's conftest, with a list of slow ones."""
    shutil.copy(CONFTEST, folder)
    (folder / "slow.txt").write_text(listed)
    (folder / "pytest.ini").write_text(
        f"[pytest]\npythonpath = {CONFTEST.parent}\nmarkers =\n  isa: features\n  slow: long\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_of_the_cases_of_a_slow_test_some_are_left(tmp_path: Path) -> None:
    cases = "import pytest\n\n\n@pytest.mark.parametrize('n', range(9))\ndef test_case(n):\n    pass\n"
    (tmp_path / "test_cases.py").write_text(f"{cases}\n\ndef test_long():\n    pass\n")
    listed = "# Slow.\n1/4 test_cases.py::test_case\ntest_cases.py::test_long\n"
    done = run(tmp_path, "-m", "not slow", "--collect-only", "-q", listed=listed)
    assert re.findall(r"test_\w+(?:\[\d\])?$", done.stdout, re.MULTILINE) == [f"test_case[{n}]" for n in (0, 4, 8)]


def test_skipped_tests_and_files_are_counted_by_reason(tmp_path: Path) -> None:
    (tmp_path / "test_file.py").write_text('import pytest\npytest.importorskip("a_package_that_is_not_there")\n')
    marked = 'import pytest\n\n\n@pytest.mark.isa("no_such_feature")\n@pytest.mark.parametrize("n", [1, 2])\n'
    (tmp_path / "test_marked.py").write_text(marked + "def test_marked(n):\n    assert False\n")
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 skipped" in done.stdout
    assert "not tested: 2 skipped: this CPU has no no_such_feature" in done.stdout
    assert "not tested: 1 skipped: could not import 'a_package_that_is_not_there'" in done.stdout


@pytest.mark.skipif(native() is not X86, reason="hides features of x86-64")
@pytest.mark.parametrize("processes", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)], ids=["here", "by xdist"])
def test_a_run_as_another_cpu(processes: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "test_hidden.py").write_text(AS_ANOTHER)
    done = run(tmp_path, "--as-cpu", "x86-64-v3-no-bmi2", *processes)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "as x86-64-v3-no-bmi2, hidden:" in done.stdout
    assert "5 passed, 1 skipped" in done.stdout
    assert "not tested: 1 skipped: this CPU has no bmi2" in done.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("neoverse-v1" if native() is X86 else "x86-64-v3", "and this machine lacks its"),
        ("x86-64-v33", "LLVM does not know"),
        ("nehalem", "has no AVX2"),
        ("cuda:sm_90", "is no CPU"),
    ],
)
def test_a_cpu_that_this_one_cannot_stand_for(
    name: str, said: str, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = pytestconfig.pluginmanager.get_plugins()
    conftest = next(each for each in loaded if getattr(each, "__file__", None) == str(CONFTEST))
    monkeypatch.setattr(pytestconfig.option, "as_cpu", name)
    with pytest.raises(pytest.UsageError, match=r"^--as-cpu") as refused:
        conftest.pytest_configure(pytestconfig)
    assert said in str(refused.value)
