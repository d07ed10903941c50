"""What the registry costs: importing, opening, finding, and calling, each beside its limit.

Run with ``python -m benchmarks.registry``; exits with 1 if a limit is passed. All times are the least of
several, so that what else the machine does counts little.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tvm_ffi

from tvmconv import load, ops
from tvmconv.building.builder import build
from tvmconv.cli.output import print_json, print_table
from tvmconv.fills import random_fill
from tvmconv.measuring.timing import time_call
from tvmconv.problem import DTYPES, Problem
from tvmconv.runtime.arrays import view
from tvmconv.runtime.bundle import Bundle, BundleTarget, Entry, write_manifest
from tvmconv.signature import format_signature

ENTRIES = (100, 1_000, 10_000)
REPEATS = 7
# A fresh process without torch, which tvm-ffi would import.
IMPORT = """
import sys, time
sys.modules["torch"] = None
start = time.perf_counter()
import tvmconv.runtime.registry, tvm_ffi
print(time.perf_counter() - start)
"""


@dataclass(frozen=True)
class Row:
    """One thing measured, in seconds, and what it may cost (None: it has no limit)."""

    what: str
    seconds: float
    limit: float | None = None


def main() -> int:
    """Measure everything and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.registry", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [_importing()]
        for count in ENTRIES:
            rows += _opening(Path(folder, str(count)), count)
        for dtype in DTYPES:
            rows += _calling(Path(folder, dtype), dtype)
    passed = [row for row in rows if row.limit is not None and row.seconds > row.limit]
    if arguments.json:
        print_json([asdict(row) for row in rows])
    else:
        limits = [f"{row.limit * 1e6:.0f}" if row.limit else "-" for row in rows]
        shown = [(row.what, f"{row.seconds * 1e6:.2f}", limit) for row, limit in zip(rows, limits, strict=True)]
        print_table(("what", "us", "limit"), shown)
    return 1 if passed else 0


def _importing() -> Row:
    runs = [
        subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
        for _ in range(REPEATS)
    ]
    return Row("import the run-time half", min(float(run.stdout) for run in runs), 0.3)


def _opening(path: Path, count: int) -> list[Row]:
    problems = _write_manifest(path, count)
    registry = load(path)
    problem = problems[count // 2]
    signature, missing = format_signature(problem), problem.with_(batch=count + 1)
    return [
        Row(f"open {count} entries", _least(lambda: load(path)), 0.3),
        Row(f"registry[signature] of {count}", time_call(lambda: registry[signature], 0.2).least),
        Row(f"registry.lookup(problem) of {count}", time_call(lambda: registry.lookup(problem), 0.2).least),
        Row(f"explain a miss among {count}", _least(lambda: registry.explain(missing))),
    ]


def _write_manifest(path: Path, count: int) -> list[Problem]:
    """Write a bundle of `count` entries without libraries and return their problems."""
    problems = [
        ops.convolution((n, 14, 14, 64), (3, 3, 64, 64), strides=(1, 1), dilations=(1, 1), auto_pad="same_upper")
        for n in range(1, count + 1)
    ]
    path.mkdir()
    entries = [
        Entry(
            signature=format_signature(problem),
            target="znver4",
            algorithm="direct",
            definition_version=1,
            numerical_class="exact",
            origin="tuned",
            file=f"znver4/{format_signature(problem)}.so",
            sha256=f"{problem.batch:064x}",
            symbol="tvmconv_kernel",
            packed_filter=None,
            workspace_bytes=0,
            measured={"seconds": 1e-3, "machine": "a machine of some name", "trials": 64},
            error={"measure": "exact", "value": 0.0},
        )
        for problem in problems
    ]
    write_manifest(Bundle(path, "0.1.0", "0.27.0", "0" * 40, {"znver4": BundleTarget("cpu", ())}, tuple(entries)))
    return problems


def _calling(path: Path, dtype: str) -> list[Row]:
    """Compare calls of a kernel that computes next to nothing with the bare call on ready tensors."""
    problem = ops.convolution(
        (1, 4, 4, 2), (1, 1, 2, 2), strides=(1, 1), dilations=(1, 1), auto_pad="valid", dtype=dtype, bias_shape=(2,)
    )
    registry = load(build([problem], path, jobs=1), threads=1)  # the cost of starting threads is not the registry's
    arrays = random_fill(problem)
    out = np.empty(problem.output_shape, arrays.data.dtype)
    kernel = registry.lookup(problem)
    kernel(*arrays)
    functions: Any = vars(kernel)["_functions"]
    function = functions[kernel.info.symbol]
    tensors = [tvm_ffi.from_dlpack(view("", array)[0]) for array in (*arrays, out)]
    calls: dict[str, Callable[[], object]] = {
        "kernel(data, filter, bias)": lambda: kernel(*arrays),
        "registry.convolution(data, filter, bias, ...)": lambda: registry.convolution(
            *arrays, strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=[1, 1]
        ),
        "registry.convolution(..., out=)": lambda: registry.convolution(
            *arrays, strides=(1, 1), pads_begin=(0, 0), pads_end=(0, 0), dilations=[1, 1], out=out
        ),
    }
    bare = time_call(lambda: function(*tensors), 0.5).least
    times = {what: time_call(call, 0.5).least for what, call in calls.items()}
    return [
        Row(f"{dtype}: the bare call with ready tensors", bare),
        *(Row(f"{dtype}: {what} adds", seconds - bare, 5e-6) for what, seconds in times.items()),
    ]


def _least(call: Callable[[], object]) -> float:
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
