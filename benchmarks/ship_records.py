"""Ship what a search found: records that gain, and times of several algorithms, by which choices are judged.

    python -m benchmarks.ship_records records/znver5

leaves out records of older versions of their algorithms, says how many, and writes `tuning_logs/TARGET/records.jsonl`, of those that gain
2 % or more on the default, by their own times, and are not today's default; and `benchmarks/results/choices/tuned/TARGET.json`, the best time of every algorithm of problems that several were tuned for.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from tvmconv.algorithms import table as algorithms
from tvmconv.lowering.compiler import default_choice, samples, sketches_of
from tvmconv.signature import parse_signature
from tvmconv.support.files import write_whole
from tvmconv.targets.target import Target
from tvmconv.tuning.records import FILE, Record, parse_record

ROOT = Path(__file__).parents[1]
LEAST_GAIN = 1.02


def main() -> int:
    """Write both files of a folder of records."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ship_records", description=__doc__)
    parser.add_argument("folder", type=Path, help="a folder of records of one target, as tvmconv tune writes it")
    given = parser.parse_args()
    found = read(given.folder / FILE)
    records = [record for record in found if is_current(record)]
    print(
        f"{len(found) - len(records)} of {len(found)} records are of other versions of their algorithms, and left out"
    )
    name = given.folder.name
    target = Target.parse(name)
    shipped = [record for each in by_signature(records).values() for record in worth_shipping(each, target)]
    lines = (json.dumps(asdict(record)) + "\n" for record in sorted(shipped, key=lambda record: record.key))
    _write(ROOT / "tuning_logs" / name / FILE, "".join(lines))
    times = several(records)
    kept = {
        "machine": "; ".join(sorted({record.machine for record in records})),
        "target": name,
        "date": max(record.date for record in records),
        "microseconds": times,
    }
    _write(ROOT / "benchmarks/results/choices/tuned" / f"{name}.json", json.dumps(kept, indent=0) + "\n")
    print(f"{len(shipped)} of {len(records)} records ship; {len(times)} problems have times of several algorithms")
    return 0


def read(path: Path) -> list[Record]:
    """Return the records of a file."""
    return [parse_record(json.loads(line), path.parent.name) for line in path.read_text().splitlines()]


def is_current(record: Record) -> bool:
    """Whether a record is of its algorithm as it is today."""
    return (record.algorithm, record.version) in {(each.name, each.version) for each in algorithms.ALGORITHMS}


def by_signature(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return records by problem, the best of each first."""
    found: dict[str, list[Record]] = {}
    for record in sorted(records, key=lambda record: (record.rank, record.seconds)):
        found.setdefault(record.signature, []).append(record)
    return found


def several(records: Iterable[Record]) -> Mapping[str, Mapping[str, float]]:
    """Return the microseconds of each algorithm, of problems that have several."""
    found = sorted(by_signature(records).items())
    times = {signature: {each.algorithm: round(each.seconds * 1e6, 1) for each in known} for signature, known in found}
    return {signature: known for signature, known in times.items() if len(known) > 1}


def worth_shipping(records: list[Record], target: Target) -> list[Record]:
    """Return the records of one problem, the best first, that ship: the best, and the best exact one for ``math="strict"``.

    How much a strict one gains is not measured, but it is not the default. Alone, it would be taken in place of a transform: the best
    stays with it.
    """
    best = records[0]
    exact = [each for each in records if algorithms.get(each.algorithm).numerical_class == "exact"]
    took = best.default_seconds  # None: it was not measured
    gains = (took is None or took >= LEAST_GAIN * best.seconds) and not _is_default(best, target, "default")
    for_strict = [each for each in exact[:1] if each is not best and not _is_default(each, target, "strict")]
    return [best, *for_strict] if gains or for_strict else []


def _is_default(record: Record, target: Target, math: str) -> bool:
    """Whether a record is of the schedule that is taken without it."""
    problem = parse_signature(record.signature)
    if record.sketch != 0 or record.algorithm != default_choice(problem, target, math).algorithm:
        return False
    sketch = sketches_of(record.algorithm, problem, target)[1][0]
    chosen = [int(sample.attrs[0][int(sketch.trace.decisions[sample])]) for sample in samples(sketch)]
    return list(record.decisions) == chosen


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())


if __name__ == "__main__":
    sys.exit(main())
