"""Candidates built on a machine with a compiler, for measuring on one without.

A folder holds their libraries, and `candidates.json` with the search spaces of each problem, which of its schedules each
library is, and why others did not compile. The tuner takes them for those that it would have built itself.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from tvmconv import __version__
from tvmconv.errors import ReplayError, SourceError
from tvmconv.fleet.protocol import target_from_text, target_to_text
from tvmconv.measuring.race import Built
from tvmconv.problem import Problem
from tvmconv.signature import format_signature, parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.evaluate import Evaluator
from tvmconv.tuning.problem_tuner import ProblemTuner, Session
from tvmconv.tuning.records import Records
from tvmconv.tuning.search import Candidate, Sketch, Space
from tvmconv.tuning.tasks import Compile, Describe

INDEX = "candidates.json"


def build_ahead(
    problems: Sequence[Problem], target: Target, count: int, folder: Path, records: Records, machine: str, math: str
) -> int:
    """Build the candidates that tuning would measure next, at most `count` a problem, into the folder; return how many.

    Parameters
    ----------
    records, machine
        What was measured before, on the machine of this label: the search goes on from there, and what a race would
        compare comes along.
    """
    described = []
    number = 0
    with Evaluator(len(os.sched_getaffinity(0)), 1) as evaluator:
        session = Session(evaluator, target, records, machine, 0, math)
        for done, problem in enumerate(problems, 1):
            tuner = ProblemTuner(session, problem)
            candidates = tuner.to_prebuild(count)
            built = []
            for candidate, result in zip(
                candidates, evaluator.build(problem, target, candidates, finalists=True), strict=True
            ):
                entry: dict[str, Any] = asdict(candidate)
                if isinstance(result, Built):
                    shutil.move(result.path, folder / f"{number}.so")
                    entry |= {"file": f"{number}.so", "packed": result.packed, "ending": result.ending}
                    number += 1
                else:
                    entry["failure"] = str(result)
                built.append(entry)
            spaces = [asdict(space) for space in evaluator.spaces(problem, target, math)]
            described.append({"signature": format_signature(problem), "spaces": spaces, "candidates": built})
            print(f"candidates: {done} of {len(problems)} problems, {number} libraries", file=sys.stderr)
    index = {
        "target": target_to_text(target),
        "math": math,
        "tools": {"tvmconv": __version__, "apache-tvm": version("apache-tvm")},
        "problems": described,
    }
    (folder / INDEX).write_text(json.dumps(index))
    return number


class Listed:
    """Proposes candidates of a list, in its order: where no compiler could build others.

    Parameters
    ----------
    candidates
        What there is.
    measured
        What was measured before, which is not proposed again.
    """

    def __init__(self, candidates: Iterable[Candidate], measured: Collection[Candidate]) -> None:
        self._left = iter([candidate for candidate in dict.fromkeys(candidates) if candidate not in measured])

    def propose(self, count: int) -> list[Candidate]:
        """Return at most the next `count` of them."""
        return list(islice(self._left, count))

    def tell(self, candidate: Candidate, seconds: float) -> None:
        """Take in a measurement, of which the list does not depend."""


class Carried:
    """The candidates of a folder.

    Attributes
    ----------
    folder
        Where they are.
    target, math, tools
        What they were built for, how, and by which versions.
    problems
        In the order of the folder.

    Raises
    ------
    SourceError
        If there are none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            index = json.loads((folder / INDEX).read_text())
        except OSError as error:
            raise SourceError(
                f"{folder} has no {INDEX} ({error.strerror}); give a folder of candidates that benchmarks.gpu_prepare wrote"
            ) from error
        target = target_from_text(index["target"])
        if target is None:
            raise SourceError(f"{folder / INDEX} names no target; build the candidates again")
        self.target, self.math = target, str(index["math"])
        self.tools: Mapping[str, str] = index["tools"]
        self._described = {each["signature"]: each for each in index["problems"]}
        self.problems = [parse_signature(signature) for signature in self._described]

    def session(self, evaluator: Evaluator, records: Records, machine: str) -> Session:
        """Return the session in which these candidates are measured, by an evaluator whose work is :meth:`work`."""
        return Session(evaluator, self.target, records, machine, 0, self.math, self.tools, self._search)

    def _search(self, problem: Problem, spaces: object, measured: Mapping[Candidate, float], starts: object) -> Listed:
        return Listed(self.candidates(problem), measured)

    def candidates(self, problem: Problem) -> list[Candidate]:
        """Return the candidates of a problem, those that did not compile among them."""
        return [_candidate(each) for each in self._described[format_signature(problem)]["candidates"]]

    def spaces(self, problem: Problem) -> list[Space]:
        """Return its search spaces."""
        return [_space(each) for each in self._described[format_signature(problem)]["spaces"]]

    def library(self, problem: Problem, candidate: Candidate) -> Built | ReplayError:
        """Return a candidate's library in the folder, or why it has none."""
        for each in self._described[format_signature(problem)]["candidates"]:
            if _candidate(each) == candidate:
                if "failure" in each:
                    return ReplayError(each["failure"])
                packed = each["packed"]
                return Built(str(self.folder / each["file"]), packed and (packed[0], packed[1]), each["ending"])
        return ReplayError(f"{candidate} is none of those that were built before")

    def work(self) -> partial[list[Space] | Built | ReplayError]:
        """Return what stands in for the compiler, in a worker."""
        return partial(answer, str(self.folder))


def answer(folder: str, task: Describe | Compile) -> list[Space] | Built | ReplayError:
    """Answer a task from a folder, as `tvmconv.tuning.trial_library.work` does by compiling."""
    carried = _carried(folder)
    if isinstance(task, Describe):
        return carried.spaces(task.problem)
    return _copied(carried.library(task.problem, task.candidate), task.library)


def _copied(built: Built | ReplayError, path: str) -> Built | ReplayError:
    """Return a library copied to `path`: the tuner removes what it measured, and measures the fastest again."""
    if isinstance(built, ReplayError):
        return built
    shutil.copyfile(built.path, path)
    return Built(path, built.packed, built.ending)


@cache
def _carried(folder: str) -> Carried:
    return Carried(Path(folder))


def _candidate(fields: Mapping[str, Any]) -> Candidate:
    return Candidate(fields["algorithm"], fields["sketch"], tuple(fields["decisions"]))


def _space(fields: Mapping[str, Any]) -> Space:
    sketches = tuple(
        Sketch(tuple(map(tuple, sketch["options"])), tuple(sketch["default"])) for sketch in fields["sketches"]
    )
    return Space(fields["algorithm"], fields["version"], fields["numerical_class"], sketches)
