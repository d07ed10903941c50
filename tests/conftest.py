"""How many threads tests use, what they skip, and that Hypothesis draws the same examples in every run."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import warm_workers
from hypothesis import settings

from tvmconv.errors import TvmconvError
from tvmconv.isa.machine import HIDDEN, cpu_features, missing_features
from tvmconv.runtime.processors import allowed_processors
from tvmconv.support import workers
from tvmconv.support.heap import spare_time

# Several test processes share the cores, of which they may have fewer than they see: a thread that waits for another
# must let it run, a thread for each of many cores would wait long, and NumPy's computes nothing large.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", str(min(len(allowed_processors()), 4)))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell that starts this in the background lets it ignore Ctrl-C, and all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Two processes and more collect the tests, and some hundreds are started: each would compile every module that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Looking for garbage took a third of the time of the imports that collect the tests.
spare_time()

# A failure is a change of the code.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("fixed")

# Modules at the last look; so many more are worth another.
IMPORTED = pytest.StashKey[int]()
MANY_MODULES = 100


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files of scheduled IR again")
    parser.addoption("--as-cpu", metavar="NAME", help="hide what this CPU has and NAME, such as x86-64-v3, has not")


def pytest_configure(config: pytest.Config) -> None:
    """Hide features from this process and from those that it starts."""
    name = config.getoption("--as-cpu")
    if name is None:
        return
    from tvmconv.targets.target import Target

    try:
        wanted = Target.parse(name)
    except TvmconvError as error:
        raise pytest.UsageError(f"--as-cpu: {error}") from None
    if wanted.kind != "cpu":
        raise pytest.UsageError(f"--as-cpu is {name}, which is no CPU; allowed: an LLVM CPU name such as x86-64-v3")
    if missing := missing_features(wanted.features):
        raise pytest.UsageError(
            f"--as-cpu is {name}, and this machine lacks its {', '.join(missing)}; "
            "allowed: a CPU with no more features than this machine's, such as x86-64-v3"
        )
    used = {wanted.isa.linux_name(each) for each in wanted.isa.used}
    if hidden := (cpu_features() & used) - set(wanted.features):
        os.environ[HIDDEN] = " ".join(sorted({*os.environ.get(HIDDEN, "").split(), *hidden}))


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which CPU this one is taken for."""
    name = config.getoption("--as-cpu")
    return f"as {name}, hidden: {os.environ.get(HIDDEN) or 'nothing that this CPU has'}" if name else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that slow.txt lists, before those that are marked are left out."""
    lines = (Path(__file__).parent / "slow.txt").read_text().splitlines()
    listed = [line.rpartition(" ") for line in lines if line and not line.startswith("#")]
    for share, _, begin in listed:
        found = [item for item in items if item.nodeid.startswith(begin)]
        for number, item in enumerate(found):
            if not share or number % int(share.removeprefix("1/")):
                item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through TVM and PyTorch, which is a sixth of the time of a schedule."""
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Do so with what tests import later, as parts of PyTorch: `tvmconv.torch.optimize` collects garbage in each call."""
    known = item.config.stash.get(IMPORTED, 0)
    if len(sys.modules) > known + MANY_MODULES:
        item.config.stash[IMPORTED] = len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_records_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user has tuned plays no part, and there may be no home to look for it in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        # Each kernel is built once in a run, whichever of its tests, in whichever process, asks first.
        folder = tmp_path_factory.getbasetemp()
        patch.setenv(
            "TVMCONV_CACHE", str((folder.parent if os.environ.get("PYTEST_XDIST_WORKER") else folder) / "kernels")
        )
        yield


@pytest.fixture(scope="module", autouse=True)
def workers_have_imported_tvm() -> Iterator[None]:
    """Fork worker processes, but those of PyTorch, from one that has imported TVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "subprocess", warm_workers.SUBPROCESS)
        yield


@pytest.fixture
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build every kernel, as tests of builds that fail need it."""
    monkeypatch.setenv("TVMCONV_CACHE", "")


@pytest.fixture
def fresh_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start worker processes as users do: what they import, and how they hash, is their own."""
    monkeypatch.setattr(workers, "subprocess", subprocess)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what runs instructions that this CPU lacks."""
    needed = {feature for mark in item.iter_markers("isa") for feature in mark.args}
    if missing := missing_features(needed):
        pytest.skip(f"this CPU has no {', '.join(missing)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last what could not be tested here, by reason."""
    reports = terminalreporter.getreports("skipped")
    # Of a skip the report has the file, the line and the reason; of a test that is known to fail, another text.
    reasons = Counter(
        each.longrepr[2].removeprefix("Skipped: ") for each in reports if isinstance(each.longrepr, tuple)
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"not tested: {count} skipped: {reason}")
