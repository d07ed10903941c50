"""Tune for a GPU what `benchmarks.gpu_compare` compares, within a number of seconds, and keep the records in a folder.

The records are what `tuning_logs/` ships: FOLDER/cuda-sm_90/records.jsonl, labelled with the card.
"""

from __future__ import annotations

import argparse
import sys

from tvmconv.algorithms import MATHS
from tvmconv.cli.output import print_table
from tvmconv.problem import DTYPES
from tvmconv.records import Records
from tvmconv.signature import format_signature
from tvmconv.tuner import tune

from .gpu_compare import problems_of


def main() -> int:
    """Tune; print a line for each problem; exit with 1 if none has a schedule that works."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_tune", description=__doc__)
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="TOML suites, ONNX files or signatures")
    parser.add_argument("--target", default="cuda:sm_90", help="default: %(default)s")
    parser.add_argument("--batch", type=int, action="append", help="may be repeated; default 1 and 32")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="may be repeated; default: all")
    parser.add_argument("--math", choices=MATHS, default="default")
    parser.add_argument("--seconds", type=float, required=True, help="for all problems together")
    parser.add_argument("--least", type=float, default=6, help="seconds that a problem needs: others are left out")
    parser.add_argument("--records", required=True, metavar="FOLDER", help="where records are kept")
    arguments = parser.parse_args()
    problems = problems_of(arguments.sources, arguments.batch or [1, 32], arguments.dtype or list(DTYPES))
    # A share of the time that is too short for the default schedules alone would tune nothing.
    chosen = problems[: max(1, int(arguments.seconds / arguments.least))]
    results = tune(
        chosen, arguments.target, seconds=arguments.seconds, math=arguments.math, records=Records(arguments.records)
    )
    rows = [
        (
            format_signature(result.problem),
            result.record.algorithm if result.record else "-",
            str(result.trials),
            str(len(result.failures)),
            f"{result.record.seconds * 1e6:.1f}" if result.record else "-",
            f"{result.gain:.3f}" if result.gain else "-",
        )
        for result in results
    ]
    print_table(("signature", "algorithm", "trials", "failures", "us", "gain"), rows)
    print(f"{len(chosen)} of {len(problems)} problems", file=sys.stderr)
    return int(not any(result.record for result in results))


if __name__ == "__main__":
    sys.exit(main())
