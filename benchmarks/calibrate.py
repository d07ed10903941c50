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
from collections.abc import Iterator
from pathlib import Path

from tvmconv.algorithms import table as algorithms
from tvmconv.algorithms.cpu.fit import Sample
from tvmconv.cli.output import progress_bar
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets import cost_rows as costs
from tvmconv.targets.target import CpuTarget, Target
from tvmconv.tuning.calibrate import PROBLEMS, row_of, samples_of
from tvmconv.tuning.evaluate import Evaluator

from .choices import RESULTS
from .compare import NETWORKS, read_suites
from .machine import describe_machine

ROWS = Path(costs.__file__).with_name("costs.json")


def main() -> int:
    """Calibrate as the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibrate", description=__doc__)
    parser.add_argument("source", nargs="*", help="suites or signatures beside those built for it; default: all suites")
    parser.add_argument("--target", default="host", help="default: host")
    parser.add_argument("--times", metavar="FILE", help="fit to times that are kept, and time nothing")
    parser.add_argument("--dry-run", action="store_true", help="print the row, and write nothing")
    arguments = parser.parse_args()
    target = Target.parse(arguments.target)
    assert isinstance(target, CpuTarget)
    if arguments.times:
        samples = list(_kept(Path(arguments.times), target))
    else:
        suites = read_suites(arguments.source or NETWORKS, "f32", "nxc").values()
        problems = [*map(parse_signature, PROBLEMS), *(problem for suite in suites for problem in suite)]
        samples = []
        jobs = len(os.sched_getaffinity(0))
        with Evaluator(jobs=jobs, threads=1) as evaluator, progress_bar("timing") as progress:
            for number, problem in enumerate(dict.fromkeys(problems)):
                progress(number, len(problems), format_signature(problem))
                samples += samples_of(problem, target, evaluator)
    row = row_of(samples, target)
    if arguments.dry_run:
        print(costs.row_text({target.mcpu: row}))
        return 0
    if not arguments.times:
        _keep(samples, target)
    ROWS.write_text(costs.row_text({**costs.all_rows(), target.mcpu: row}))
    print(f"{ROWS}: {target.mcpu}, residuals {dict(row.residuals or {})}", file=sys.stderr)
    return 0


def _kept(path: Path, target: CpuTarget) -> Iterator[Sample]:
    for signature, times in json.loads(path.read_text())["microseconds"].items():
        problem = parse_signature(signature)
        for name, microseconds in times.items():
            algorithm = algorithms.get(name)
            if algorithm.covers(problem, target) is None:
                yield Sample(signature, name, microseconds * 1e-6, algorithm.estimate(problem, target))


def _keep(samples: list[Sample], target: CpuTarget) -> None:
    times: dict[str, dict[str, float]] = {}
    for sample in samples:
        times.setdefault(sample.signature, {})[sample.algorithm] = round(sample.seconds * 1e6, 2)
    kept = {
        "machine": describe_machine(),
        "target": target.name,
        "date": time.strftime("%Y-%m-%d"),
        "microseconds": times,
    }
    (RESULTS / f"{target.folder}.json").write_text(json.dumps(kept, indent=0) + "\n")


if __name__ == "__main__":
    sys.exit(main())
