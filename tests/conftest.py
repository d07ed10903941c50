"""How many threads tests use, what they skip, and that Hypothesis draws the same examples in every run."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest
import warm_workers
from hypothesis import settings

from tvmconv.isa.machine import missing_features
from tvmconv.support import workers

# Several test processes share the cores, of which they may have fewer than they see: a thread that waits for another
# must let it run, a thread for each of many cores would wait long, and NumPy's computes nothing large.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", str(min(len(os.sched_getaffinity(0)), 4)))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell that starts this in the background lets it ignore Ctrl-C, and all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A failure is a change of the code.
settings.register_profile("fixed", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files of scheduled IR again")


def pytest_collection_finish() -> None:
    """Keep the garbage collector from looking through TVM and PyTorch, which is a sixth of the time of a schedule."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def no_records_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user has tuned plays no part, and there may be no home to look for it in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="module", autouse=True)
def workers_have_imported_tvm() -> Iterator[None]:
    """Fork worker processes, but those of PyTorch, from one that has imported TVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(workers, "subprocess", warm_workers.SUBPROCESS)
        yield


@pytest.fixture
def fresh_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start worker processes as users do: what they import, and how they hash, is their own."""
    monkeypatch.setattr(workers, "subprocess", subprocess)


LACKING = "lacking"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what runs instructions that this CPU lacks, and write down which."""
    needed = {feature for mark in item.iter_markers("isa") for feature in mark.args}
    if missing := missing_features(needed):
        item.user_properties.append((LACKING, " ".join(missing)))
        pytest.skip(f"this CPU has no {', '.join(missing)}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say last what could not be tested here."""
    # A file that is skipped whole, for a package that is not there, has a report of another kind.
    tests = [each for each in terminalreporter.getreports("skipped") if isinstance(each, pytest.TestReport)]
    skipped = [dict(report.user_properties).get(LACKING) for report in tests]
    if lacking := [features for features in skipped if features]:
        features = sorted(set(" ".join(lacking).split()))
        terminalreporter.write_line(f"not tested: {len(lacking)} tests of {', '.join(features)}, which this CPU lacks")
