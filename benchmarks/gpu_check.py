"""Call every kernel of a folder once on the GPU, each where a crash ends nothing else, and compare it with the reference.

The folder is one that tests/gpu_kernels.py fills. It takes the driver and NumPy alone, and comes before all else: a kernel
that the GPU does not survive would fail every test after it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tvmconv.measuring.cuda_measure import measure
from tvmconv.measuring.measure import Check, Measured
from tvmconv.measuring.race import Built
from tvmconv.runtime.cuda.gpus import survey
from tvmconv.signature import parse_signature
from tvmconv.support.sandbox import Sandbox, TimeoutExceededError
from tvmconv.support.workers import WorkerDiedError

# A call takes microseconds; a process waits for the driver first.
SECONDS = 15.0
# What waits on barriers in memory, and so may wait forever, comes last.
LAST = ("wgmma", "wgmma_groups")


def main() -> int:
    """Check them; print a line for each that is not right, and how many are; exit with 1 if one is not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_check", description=__doc__)
    parser.add_argument("folder", type=Path, help="with kernels.json")
    parser.add_argument("--output", type=Path, help="write a JSON list of all verdicts to this file")
    parser.add_argument(
        "--dry", action="store_true", help="on a driver that computes nothing: wrong answers are what is expected"
    )
    arguments = parser.parse_args()
    if obstacle := survey().obstacle:
        parser.exit(3, f"{parser.prog}: {obstacle}\n")
    verdicts = []
    expected = "wrong" if arguments.dry else "right"
    for each in check(arguments.folder):
        verdicts.append(each)
        if each["status"] != expected:
            print(f"{each['status']}: {each['algorithm']} of {each['signature']}: {each['detail']}", flush=True)
        if arguments.output:  # again with each: the run may be ended
            arguments.output.write_text(json.dumps(verdicts, indent=1) + "\n")
    print(", ".join(f"{count} {status}" for status, count in Counter(each["status"] for each in verdicts).items()))
    return int(not verdicts or any(each["status"] != expected for each in verdicts))


def check(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield each kernel's result: ``"right"``, ``"wrong"``, ``"crashed"`` or ``"timeout"``, its error, its time."""
    sandbox: Sandbox[Check, Measured] = Sandbox(measure, len(os.sched_getaffinity(0)))  # type: ignore[arg-type]
    kernels = json.loads((folder / "kernels.json").read_text())
    for made in sorted(kernels, key=lambda made: made["algorithm"] in LAST):
        problem = parse_signature(made["signature"])
        if problem.is_empty:
            continue
        status, detail, seconds = "crashed", "", None
        try:
            # Slower than nothing: it is not timed for long.
            answer = sandbox.call(
                Check(problem, made["numerical_class"], Built(str(folder / made["file"])), 0.0), SECONDS
            )
            status, detail, seconds = "wrong" if answer.wrong else "right", answer.wrong, answer.seconds
        except TimeoutExceededError as error:
            status, detail = "timeout", str(error)
        except WorkerDiedError as error:
            detail = str(error)
        what = {"signature": made["signature"], "algorithm": made["algorithm"]}
        yield {**what, "status": status, "detail": detail, "seconds": seconds}
    sandbox.close()


if __name__ == "__main__":
    sys.exit(main())
