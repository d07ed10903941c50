"""What calls of more threads than there are processors cost: the processor's time of all threads by that of one thread for the same calls.

    python -m benchmarks.crowded

One layer, by its default plan, on all processors of this process and on one; each row is the median of some rounds, in turns.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from threading import Thread

import numpy as np

import tvmconv
from tvmconv.cli.output import print_table
from tvmconv.signature import parse_signature

SIGNATURE = "conv2d-n2-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
ROUNDS, CALLS = 7, 20
CASES = ((2, 1), (33, 1), (33, 4))  # threads, callers


def processor_seconds(kernel: tvmconv.Kernel, callers: int) -> float:
    """Return the time that all threads take for calls of some callers at once; fail if an answer is not that of one call."""
    generator, problem = np.random.default_rng(0), kernel.problem
    data, filters = (generator.random(shape, np.float32) for shape in (problem.data_shape, problem.filter_shape))
    packed, expected, answers = kernel.pack(filters), kernel(data, filters), []

    def call() -> None:
        out = np.empty_like(expected)
        for _ in range(CALLS):
            kernel(data, packed, out=out)
        answers.append(out)

    threads = [Thread(target=call) for _ in range(callers)]
    begin = time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.process_time() - begin
    if not all(np.array_equal(each, expected) for each in answers):
        raise SystemExit("an answer is wrong")
    return seconds


def measure(bundle: str) -> None:
    """Print a line for each case: the time by that of one thread."""
    kernels: dict[int, tvmconv.Kernel] = {}
    for threads in (1, *(case[0] for case in CASES)):
        kernel = tvmconv.load(bundle, threads=threads)[SIGNATURE]
        assert isinstance(kernel, tvmconv.Kernel)
        kernels[threads] = kernel
    for threads, callers in CASES:
        ratios = []
        for _ in range(ROUNDS):
            work = processor_seconds(kernels[1], 1) * callers
            ratios.append(processor_seconds(kernels[threads], callers) / work)
        print(f"{median(ratios):.2f}")


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crowded", description=__doc__)
    parser.add_argument("--bundle", help="measure this bundle, on the processors that this process may use")
    bundle = parser.parse_args(argv).bundle
    if bundle is not None:
        measure(bundle)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        built = tvmconv.build([parse_signature(SIGNATURE)], Path(folder) / "bundle", verify=False)
        every, columns = sorted(os.sched_getaffinity(0)), []
        for processors in (every, every[:1]):
            os.sched_setaffinity(0, processors)
            command = [sys.executable, "-W", "ignore", "-m", __spec__.name, "--bundle", str(built)]
            columns.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        os.sched_setaffinity(0, every)
    cases = [[str(threads), str(callers)] for threads, callers in CASES]
    header = ("threads", "callers", f"on {len(every)} processors", "on one")
    print_table(header, [[*case, *ratios] for case, *ratios in zip(cases, *columns, strict=True)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
