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
from pathlib import Path

from tvmconv.measuring.cuda_measure import measure
from tvmconv.measuring.measure import Check, Measured
from tvmconv.measuring.race import Built
from tvmconv.runtime.cuda import survey
from tvmconv.signature import parse_signature
from tvmconv.support.sandbox import Sandbox, TimeoutExceededError
from tvmconv.support.workers import WorkerDiedError

# A call takes microseconds; the first of a process waits for the driver.
SECONDS = 60.0


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
    verdicts = check(arguments.folder)
    if arguments.output:
        arguments.output.write_text(json.dumps(verdicts, indent=1) + "\n")
    expected = "wrong" if arguments.dry else "right"
    for each in verdicts:
        if each["status"] != expected:
            print(f"{each['status']}: {each['algorithm']} of {each['signature']}: {each['detail']}")
    print(", ".join(f"{count} {status}" for status, count in Counter(each["status"] for each in verdicts).items()))
    return int(not verdicts or any(each["status"] != expected for each in verdicts))


def check(folder: Path) -> list[dict[str, str]]:
    """Return what came of each kernel: ``"right"``, ``"wrong"``, ``"crashed"`` or ``"timeout"``, and in what it differs."""
    sandbox: Sandbox[Check, Measured] = Sandbox(measure, len(os.sched_getaffinity(0)))  # type: ignore[arg-type]
    verdicts = []
    for made in json.loads((folder / "kernels.json").read_text()):
        problem = parse_signature(made["signature"])
        if problem.is_empty:
            continue
        status, detail = "crashed", ""
        try:
            # Slower than nothing: it is not timed for long.
            answer = sandbox.call(
                Check(problem, made["numerical_class"], Built(str(folder / made["file"])), 0.0), SECONDS
            )
            status, detail = "wrong" if answer.wrong else "right", answer.wrong
        except TimeoutExceededError as error:
            status, detail = "timeout", str(error)
        except WorkerDiedError as error:
            detail = str(error)
        verdicts.append(
            {"signature": made["signature"], "algorithm": made["algorithm"], "status": status, "detail": detail}
        )
    sandbox.close()
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
