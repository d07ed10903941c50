"""Write a bundle of those candidates, built before, that won: without a compiler, to compare them at once."""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from pathlib import Path

import tvm_ffi

from tvmconv import __version__
from tvmconv.measuring.race import Built
from tvmconv.runtime.bundle import Bundle, BundleTarget, Entry, write_manifest
from tvmconv.tuning.records import Record, Records

from .gpu_candidates import Carried


def main() -> int:
    """Write it; say how many kernels it has; exit with 1 if none."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_tuned", description=__doc__)
    parser.add_argument("candidates", type=Path, help="the folder that benchmarks.gpu_tune measured")
    parser.add_argument("records", type=Path, help="where it put its records")
    parser.add_argument("bundle", type=Path, help="the new folder")
    arguments = parser.parse_args()
    count = write_tuned(Carried(arguments.candidates), Records(arguments.records, shipped=False), arguments.bundle)
    print(f"{count} tuned kernels")
    return int(not count)


def write_tuned(carried: Carried, records: Records, path: Path) -> int:
    """Write the bundle, and return how many of the carried problems have a record of a candidate with a library."""
    target = carried.target
    (path / target.folder).mkdir(parents=True)
    entries = []
    for problem in carried.problems:
        record = records.best(problem, target, carried.math)
        built = record and carried.library(problem, record.candidate)
        if isinstance(built, Built):
            assert record is not None
            classes = {space.algorithm: space.numerical_class for space in carried.spaces(problem)}
            file = f"{target.folder}/{record.signature}.so"
            shutil.copyfile(built.path, path / file)
            entries.append(_entry(record, classes[record.algorithm], file, path / file, target.kind))
    targets = {target.name: BundleTarget(target.kind, target.features)}
    write_manifest(Bundle(path, __version__, carried.tools["apache-tvm"], None, targets, tuple(entries)))
    return len(entries)


def _entry(record: Record, numerical_class: str, file: str, library: Path, kind: str) -> Entry:
    return Entry(
        signature=record.signature,
        target=record.target,
        algorithm=record.algorithm,
        definition_version=record.version,
        numerical_class=numerical_class,
        origin="tuned",
        file=file,
        sha256=hashlib.sha256(library.read_bytes()).hexdigest(),
        symbol="tvmconv_kernel",
        packed_filter=None,
        # Only a GPU's kernels are given theirs by the caller.
        workspace_bytes=int(tvm_ffi.load_module(str(library))["tvmconv_workspace_bytes"]()) if kind == "cuda" else 0,
        measured={"seconds": record.seconds, "machine": record.machine, "trials": record.trials},
        error=None,
    )


if __name__ == "__main__":
    sys.exit(main())
