"""Random cases, one a seed, for as long as told: the command that is behind `python -m tests.programs` and `tests.graphs`."""

from __future__ import annotations

import argparse
import secrets
import time
from collections import Counter
from collections.abc import Callable
from typing import Any


def try_many(check_seed: Callable[[int], tuple[Any, str]], what: str, description: str | None) -> int:
    """Try the cases that the command line asks for; return 1 if one was wrong or failed, else 0."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.{what}", description=description)
    parser.add_argument("--seconds", type=float, default=60, help="stop after so many seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, help=f"of the first of the {what}; the next has the next (default: a new one)")  # fmt: skip
    parser.add_argument("--count", type=int, help=f"stop after so many {what}")
    arguments = parser.parse_args()
    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    while time.monotonic() - begin < arguments.seconds and counts.total() != arguments.count:
        outcome, text = check_seed(seed + counts.total())
        counts[outcome.kind] += 1
        if outcome.kind != "right":
            print(f"{outcome.kind}: {outcome.detail}\n{text}\n", flush=True)
    print(f"{what} from seed {seed}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if counts["wrong"] or counts["failed"] else 0
