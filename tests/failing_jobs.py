"""Stand-ins for `tvmconv.builder.compile_job` that fail; they run in worker processes."""

from __future__ import annotations

import os
from typing import NoReturn

from tvmconv import builder
from tvmconv.bundle import Entry
from tvmconv.verify import Answer, Check


def crash(job: builder.Job) -> NoReturn:
    """Crash as a compiler might."""
    os.abort()


def wrong(job: builder.Job) -> tuple[Entry, list[str]]:
    """Compile a kernel that turns out to be wrong."""
    builder.check_kernel = _wrong_answer
    return builder.compile_job(job)


def _wrong_answer(check: Check) -> Answer:
    return Answer("exact", 1.0, "1 of 2 outputs differ")
