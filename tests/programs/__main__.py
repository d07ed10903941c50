"""Try random PyTorch programs for as long as told; exit with 1 if one was wrong or failed."""

from __future__ import annotations

import argparse
import secrets
import sys
import time
from collections import Counter

import torch

from .check import check_seed


def main() -> int:
    """Run the programs that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="stop after so many seconds (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="of the first program; the next has the next (default: a new one)")
    parser.add_argument("--programs", type=int, help="stop after so many programs")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    seed = secrets.randbelow(2**31) if arguments.seed is None else arguments.seed
    counts: Counter[str] = Counter()
    begin = time.monotonic()
    while time.monotonic() - begin < arguments.seconds and counts.total() != arguments.programs:
        outcome, text = check_seed(seed + counts.total())
        counts[outcome.kind] += 1
        if outcome.kind != "right":
            print(f"{outcome.kind}: {outcome.detail}\n{text}\n", flush=True)
    print(f"programs from seed {seed}: " + ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())))
    return 1 if counts["wrong"] or counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
