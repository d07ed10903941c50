"""Tune for a GPU what `benchmarks.gpu_compare` compares, within a number of seconds, and keep the records in a folder.

The records are what `tuning_logs/` ships: FOLDER/cuda-sm_90/records.jsonl, labelled with the card. With --candidates the
schedules are measured that `benchmarks.gpu_prepare` built; there need be no compiler then.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tvmconv.algorithms.table import MATHS
from tvmconv.cli.output import print_table
from tvmconv.errors import SourceError, UnsupportedMachineError
from tvmconv.measuring.measure import measure
from tvmconv.problem import DTYPES
from tvmconv.runtime.processors import kernel_threads
from tvmconv.signature import format_signature
from tvmconv.targets.cuda import SPECIFIC
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.machine import TuningMachine, check_tunable, tuning_machine
from tvmconv.tuning.problem_tuner import TuneResult
from tvmconv.tuning.records import Records
from tvmconv.tuning.tuner import tune, tune_all
from tvmconv.tuning.turns import Budget, TuneProgress, Turns

from .gpu_candidates import Carried
from .gpu_problems import problems_of


def main() -> int:
    """Tune; print a line for each problem; exit with 1 if none has a schedule that works."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_tune", description=__doc__)
    parser.add_argument("sources", nargs="*", metavar="SOURCE", help="TOML suites, ONNX files or signatures")
    parser.add_argument(
        "--candidates", type=Path, metavar="FOLDER", help="measure what was built before, and no sources"
    )
    parser.add_argument("--target", default=f"cuda:{SPECIFIC}", help="default: %(default)s")
    parser.add_argument("--batch", type=int, action="append", help="may be repeated; default 1 and 32")
    parser.add_argument("--dtype", choices=DTYPES, action="append", help="may be repeated; default: all")
    parser.add_argument("--math", choices=MATHS, default="default")
    parser.add_argument("--seconds", type=float, required=True, help="for all problems together")
    parser.add_argument("--least", type=float, default=6, help="seconds that a problem needs: others are left out")
    parser.add_argument("--records", required=True, metavar="FOLDER", help="where records are kept")
    arguments = parser.parse_args()
    if bool(arguments.sources) == bool(arguments.candidates):
        parser.error("give sources, or --candidates FOLDER alone")
    records = Records(arguments.records)
    if arguments.candidates:
        try:
            results = measure_carried(Carried(arguments.candidates), arguments.seconds, records)
        except (SourceError, UnsupportedMachineError) as error:
            parser.exit(3, f"{parser.prog}: {error}\n")
        count = len(results)
    else:
        problems = problems_of(arguments.sources, arguments.batch or [1, 32], arguments.dtype or list(DTYPES))
        # A share of the time that is too short for the default schedules alone would tune nothing.
        chosen, count = problems[: max(1, int(arguments.seconds / arguments.least))], len(problems)
        results = tune(chosen, arguments.target, seconds=arguments.seconds, math=arguments.math, records=records)
    _print(results)
    print(f"{len(results)} of {count} problems", file=sys.stderr)
    return int(not any(result.record for result in results))


def measure_carried(carried: Carried, seconds: float, records: Records) -> list[TuneResult]:
    """Measure carried candidates for about so many seconds, and record what wins, as :func:`tvmconv.tuning.tuner.tune` does.

    Raises
    ------
    UnsupportedMachineError
        If this machine cannot run them.
    """
    target = check_tunable(carried.target)
    if target.kind == "cuda":
        machine = tuning_machine(target)
    else:  # a dry run: which CPU it is, the compiler would know
        machine = TuningMachine("a CPU in a dry run", kernel_threads(), measure)
    with Evaluator(1, machine.threads, work=carried.work(), measure=machine.measure) as evaluator:
        session = carried.session(evaluator, records, machine.label)
        return tune_all(session, carried.problems, None, seconds, _report, give_turns=partial(_one_by_one, seconds))


def _one_by_one(seconds: float, problems: Sequence[Turns], budget: Budget) -> None:
    """Let each problem take its turns, then race: there is no TVM, whose task schedulers give turns.

    Each has an equal share of the time; what it leaves is the others'.
    """
    for number, turns in enumerate(problems):
        end = budget.elapsed() + (seconds - budget.elapsed()) / (len(problems) - number)
        while budget.elapsed() < end or not turns.measured:
            candidates = turns.propose()
            if not candidates:
                break
            turns.measure(candidates)
        turns.finish()


def _report(state: TuneProgress) -> None:
    """Log a problem at its first candidate, so that the log of an ended run shows how far it came."""
    if state.trials == 1:
        print(f"{state.number} of {state.count}: {format_signature(state.problem)}", file=sys.stderr, flush=True)


def _print(results: list[TuneResult]) -> None:
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


if __name__ == "__main__":
    sys.exit(main())
