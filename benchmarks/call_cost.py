"""What a call of a small network costs, by each way to make it: microseconds, the median of a process's calls, the least of rounds in turn.

    python -m benchmarks.call_cost

A network is so many layers, each a Linear of 8x8 or a convolution of 8 channels with 3x3 taps at 8x8; each contender has one thread, in a
process of its own. `optimize` is the copy that `tvmconv.torch.optimize` returns, with what it watches; `network` is a network's own call with
arrays by name, `bound` one that is bound to its arrays (`Network.call`).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tvmconv.cli.output import print_table
from tvmconv.support.workers import Worker

from .call_cost_child import CONTENDERS, KINDS, Task, prepare, time_calls


def main(argv: Sequence[str] | None = None) -> int:
    """Measure networks of 1, 10 and 50 layers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.call_cost", description=__doc__)
    parser.add_argument("--layers", type=int, action="append", help="may be repeated; default: 1, 10 and 50")
    parser.add_argument("--rounds", type=int, default=3, help="default %(default)s")
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for kind in KINDS:
            for layers in arguments.layers or (1, 10, 50):
                folder = Path(temporary) / f"{kind}{layers}"
                folder.mkdir()
                prepare(kind, layers, folder)
                rows.append([kind, str(layers), *_race(kind, layers, folder, arguments.rounds)])
    print_table(["layers", "number", *CONTENDERS], rows)
    return 0


def _race(kind: str, layers: int, folder: Path, rounds: int) -> list[str]:
    workers = {each: Worker(time_calls, 1, torch=each in ("eager", "optimize")) for each in CONTENDERS}
    try:
        least = dict.fromkeys(CONTENDERS, float("inf"))
        for _ in range(rounds):
            for each, worker in workers.items():
                least[each] = min(least[each], worker.call(Task(each, kind, layers, str(folder))))
    finally:
        for worker in workers.values():
            worker.close()
    return [f"{least[each]:.1f}" for each in CONTENDERS]


if __name__ == "__main__":
    sys.exit(main())
