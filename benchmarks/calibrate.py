"""A CPU's row of the cost model: times kernels that are built for it, solves for the coefficients, and writes the row.

The row goes to `tvmconv/targets/costs.json`, with its residuals, and the times to `benchmarks/results/choices`, where
`python -m benchmarks.choices` judges the choices of all rows by them. The machine must do nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu.model.fit import Sample
from tvmconv.cli.output import progress_bar
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets import cost_rows as costs
from tvmconv.targets.target import CpuTarget, Target
from tvmconv.tuning.calibrate import PROBLEMS, cold_pairs, cold_row, row_of, samples_of
from tvmconv.tuning.evaluate import Evaluator

from .choices import RESULTS
from .compare import NETWORKS, read_suites
from .machine import describe_machine

ROWS = Path(costs.__file__).with_name("costs.json")
# Of a file of times: with hot filters; and of some problems, timed together, with hot ones and with cold ones.
HOT, BESIDE_COLD, COLD = "microseconds", "microseconds_beside_cold", "microseconds_cold"


def main() -> int:
    """Calibrate as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibrate", description=__doc__)
    parser.add_argument("source", nargs="*", help="suites or signatures beside those built for it; default: all suites")
    parser.add_argument("--target", default="host", help="default: host")
    parser.add_argument("--times", metavar="FILE", help="fit to times that are kept, and time nothing")
    parser.add_argument(
        "--cold",
        action="store_true",
        help="time filters from memory alone, and change what they take; the rest of the row stays",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the row, and write nothing")
    arguments = parser.parse_args()
    target = Target.parse(arguments.target)
    assert isinstance(target, CpuTarget)
    samples: list[Sample] = []
    if arguments.times:
        samples = list(_kept(Path(arguments.times), target, HOT))
        pairs = _paired(Path(arguments.times), target)
    else:
        jobs = len(os.sched_getaffinity(0))
        with (
            Evaluator(jobs, threads=1) as evaluator,
            Evaluator(jobs, threads=1, cold_bytes=target.evicting) as cold,
            progress_bar("timing") as progress,
        ):
            if not arguments.cold:
                suites = read_suites(arguments.source or NETWORKS, "f32", "nxc").values()
                problems = [*map(parse_signature, PROBLEMS), *(problem for suite in suites for problem in suite)]
                for number, problem in enumerate(dict.fromkeys(problems)):
                    progress(number, len(problems), format_signature(problem))
                    samples += samples_of(problem, target, evaluator)
            pairs = list(cold_pairs(target, evaluator, cold, progress))
    row = cold_row(target.costs, pairs, target) if arguments.cold else row_of(samples, target, pairs)
    if arguments.dry_run:
        print(costs.row_text({target.mcpu: row}))
        return 0
    if not arguments.times:
        _keep(samples, pairs, target)
    ROWS.write_text(costs.row_text({**costs.all_rows(), target.mcpu: row}))
    print(f"{ROWS}: {target.mcpu}, residuals {dict(row.residuals or {})}", file=sys.stderr)
    return 0


def _kept(path: Path, target: CpuTarget, key: str) -> Iterator[Sample]:
    for signature, times in json.loads(path.read_text()).get(key, {}).items():
        problem = parse_signature(signature)
        for name, microseconds in times.items():
            algorithm = algorithms.get(name)
            if algorithm.covers(problem, target) is None:
                yield Sample(signature, name, microseconds * 1e-6, algorithm.estimate(problem, target))


def _paired(path: Path, target: CpuTarget) -> list[tuple[Sample, Sample]]:
    cold = {(each.signature, each.algorithm): each for each in _kept(path, target, COLD)}
    hot = {(each.signature, each.algorithm): each for each in _kept(path, target, BESIDE_COLD)}
    return [(hot[key], cold[key]) for key in hot.keys() & cold.keys()]


def _keep(samples: Sequence[Sample], pairs: Sequence[tuple[Sample, Sample]], target: CpuTarget) -> None:
    """Write times that replace those of the same kind."""
    path = RESULTS / f"{target.folder}.json"
    kept = json.loads(path.read_text()) if path.exists() else {}
    new = {HOT: samples, BESIDE_COLD: [hot for hot, _ in pairs], COLD: [cold for _, cold in pairs]}
    kept |= {"machine": describe_machine(), "target": target.name, "date": time.strftime("%Y-%m-%d")}
    kept |= {key: _times(each) for key, each in new.items() if each}
    path.write_text(json.dumps(kept, indent=0) + "\n")


def _times(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    times: dict[str, dict[str, float]] = {}
    for sample in samples:
        times.setdefault(sample.signature, {})[sample.algorithm] = round(sample.seconds * 1e6, 2)
    return times


if __name__ == "__main__":
    sys.exit(main())
