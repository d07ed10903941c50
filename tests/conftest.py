"""How many threads tests use; and Hypothesis draws the same examples in every run, so that a failure is a change of the code."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

# Several test processes share the cores, of which they may have fewer than they see: a thread that waits for another
# must let it run, a thread for each of many cores would wait long, and NumPy's computes nothing large.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OMP_NUM_THREADS", str(min(len(os.sched_getaffinity(0)), 4)))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A shell that starts this in the background lets it ignore Ctrl-C, and all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("fixed", derandomize=True, deadline=None, database=None, print_blob=True)
settings.load_profile("fixed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files of scheduled IR again")


@pytest.fixture(scope="session", autouse=True)
def no_records_of_the_user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the user has tuned plays no part, and there may be no home to look for it in."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(tmp_path_factory.mktemp("data")))
        yield
