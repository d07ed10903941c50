"""How benchmarks of whole networks run: network by network, contenders in turns, and what is found is kept at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from tvmconv.cli.output import progress_bar
from tvmconv.errors import InputError, TvmconvError
from tvmconv.support.workers import Worker, WorkerDiedError

from .network_results import NetworkRows, RatedRow, mean_ratio
from .result_files import resume, write_result

# Called with what is done now.
Report = Callable[[str], None]


@dataclass(frozen=True)
class Samples:
    """Seconds a call took, sample by sample, or why there are none."""

    samples: list[float] = field(default_factory=list)
    unsupported: str = ""


Result = TypeVar("Result", bound=NetworkRows)
Task = TypeVar("Task")
Answer = TypeVar("Answer", bound=Samples)


def measure_networks(
    networks: Sequence[str],
    known: Collection[str],
    result: Result,
    output: Path | None,
    read: Callable[[Path], Result],
    measure: Callable[[str, Report], RatedRow | None],
) -> Result:
    """Return `result` with a row of each network that could be measured; errors of the others are printed.

    Parameters
    ----------
    networks, known
        Names, and those that there are.
    result
        The conditions, without rows.
    output
        File that has the rows network by network, and keeps those that are in it; None: there is none.
    read
        Reads that file.
    measure
        Returns a network's row; None: nothing is measured.

    Raises
    ------
    InputError
        If there is no network of a name.
    SourceError
        If the file is something else, or was measured otherwise.
    """
    unknown = [name for name in networks if name not in known]
    if unknown:
        raise InputError(f"there is no network {unknown[0]!r}; allowed: {', '.join(known)}")
    kept = resume(output, result, read) if output else result
    with progress_bar("timing") as progress:
        for done, network in enumerate(networks):

            def report(what: str, done: int = done, network: str = network) -> None:
                progress(done, len(networks), f"{network}, {what}")

            try:
                row = measure(network, report)
            except TvmconvError as error:  # the others are worth their time
                print(f"error: {network}: {error}", file=sys.stderr)
                continue
            if row is None:
                continue
            result, kept = result.with_row(row), kept.with_row(row)
            if output:
                write_result(kept, output)
    return result


def take_turns(
    turns: Mapping[str, tuple[Worker[Task, Answer], Task]],
    rounds: int,
    nothing: Answer,
    report: Report,
) -> dict[str, Answer]:
    """Return the answers by name, with the samples of all rounds; one that gave none, or whose process died, takes no more turns.

    Parameters
    ----------
    turns
        By name, the process and what it does in each turn.
    nothing
        The answer before the first turn.
    """
    answers = dict.fromkeys(turns, nothing)
    for _ in range(rounds):
        for name, (worker, task) in turns.items():
            before = answers[name]
            if before.unsupported:
                continue
            report(name)
            try:
                answer = worker.call(task)
            except WorkerDiedError as error:
                answers[name] = replace(before, unsupported=str(error).splitlines()[-1])
            else:
                answers[name] = replace(answer, samples=before.samples + answer.samples)
    return answers


def print_end(rows: Iterable[RatedRow]) -> None:
    """Print the mean of the ratios, and which contenders did not take part, and why."""
    rows = list(rows)
    mean = mean_ratio(rows)
    if mean is not None:
        print(f"geometric mean of the ratios: {mean:.2f}")
    for row in rows:
        for name, reason in row.unsupported.items():
            print(f"{row.network}: {name} took no part: {reason}", file=sys.stderr)
