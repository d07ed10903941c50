"""What sessions of onnxruntime keep in memory, by its own CPU provider and by one of `tvmconv export-onnxruntime`.

    python -m benchmarks.onnxruntime_memory --providers FOLDER NAME ...

Models and providers are those of `benchmarks.onnxruntime_provider`. Each line is a process of its own, whose sessions have one thread,
and are called by several threads of the process at a time: its anonymous memory with the sessions, after 12 calls of each thread, and
after 36 more, beyond what it had before.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .onnxruntime_provider import CASES

SIDES = ("cpu", "tvmconv")
# Sessions, and threads that call them.
_KINDS = ((1, 1), (4, 4), (1, 4))
_CALLS = 12


def main(argv: Sequence[str] | None = None) -> int:
    """Print a line for each model, side and number of sessions and threads."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="+", metavar="NAME", choices=CASES)
    parser.add_argument("--providers", required=True, type=Path, metavar="FOLDER", help="where the providers are")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.worker:
        side, sessions, threads = given.worker
        return _measure(given.names[0], side, given.providers, int(sessions), int(threads))
    command = [sys.executable, "-m", "benchmarks.onnxruntime_memory", "--providers", str(given.providers)]
    for name in given.names:
        for kind in _KINDS:
            for side in SIDES:
                subprocess.run([*command, name, "--worker", side, *map(str, kind)], check=True)
    return 0


def _measure(name: str, side: str, providers: Path, sessions: int, threads: int) -> int:
    import onnxruntime as ort

    import tvmconv.onnxruntime

    case = CASES[name]
    path = case.path(providers)
    assert path is not None

    def make() -> ort.InferenceSession:
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        shapes = case.shapes or None
        if side == "cpu":
            return ort.InferenceSession(tvmconv.onnxruntime.with_shapes(path, shapes), options)
        return tvmconv.onnxruntime.session(path, providers / f"{name}.so", shapes=shapes, options=options)

    feeds = {each.name: np.zeros(each.shape, np.float32) for each in make().get_inputs()}
    before = _mebibytes()
    made = [make() for _ in range(sessions)]
    kept = [_mebibytes()]
    for rounds in (1, 3):
        for _ in range(rounds):
            callers = [
                threading.Thread(
                    target=lambda each: [each.run(None, feeds) for _ in range(_CALLS)], args=(made[n % sessions],)
                )
                for n in range(threads)
            ]
            for each in callers:
                each.start()
            for each in callers:
                each.join()
        kept.append(_mebibytes())
    shown = " | ".join(f"{each - before:.1f}" for each in kept)
    print(f"| {name} | {side} | {sessions} | {threads} | {shown} |", flush=True)
    return 0


def _mebibytes() -> float:
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(each.split()[1]) for each in lines if each.startswith("Anonymous:")) / 1024


if __name__ == "__main__":
    sys.exit(main())
