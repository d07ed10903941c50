"""Messages between a tuner and the servers that measure for it: JSON through functions of TVM's RPC.

A server has three functions. `DESCRIBE` takes the target, or null for its own CPU, and answers what the server is.
`MEASURE` begins a Check or a Race whose libraries were uploaded, and `WAIT` continues to wait for its answer: both return
within `PULSE_SECONDS`, with an empty text while there is no answer, so a server that sends nothing is lost.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from math import inf
from typing import Any

from ..errors import TvmconvError
from ..isa import ISAS, isa_named
from ..measuring.measure import Check, Measured
from ..measuring.race import Built, Race, Times
from ..signature import format_signature, parse_signature
from ..support import schema
from ..support.sandbox import TimeoutExceededError
from ..support.workers import WorkerDiedError
from ..targets.target import CpuTarget, Target

# Incremented with each change of the messages, or of measuring. In every version, DESCRIBE keeps its name, and its answer the fields
# `protocol` and `tvmconv`.
PROTOCOL = 4
DESCRIBE, MEASURE, WAIT = "tvmconv.describe", "tvmconv.measure", "tvmconv.wait"
PULSE_SECONDS = 1.0

_texts = schema.list_of(schema.text)
_named = schema.map_of(schema.kind("anything", lambda _: True))
_times = schema.list_of(schema.positive)
VERSION = schema.table({"protocol": schema.integer, "tvmconv": schema.text})
_CPU = schema.table(
    {
        "name": schema.text,
        "features": _texts,
        "mcpu": schema.text,
        "disabled": _texts,
        "caches": schema.optional(schema.list_of(schema.unsigned)),
        "isa": schema.one_of(*(isa.name for isa in ISAS)),
    }
)
_DESCRIPTION = schema.table({"host": _CPU, "machine": schema.words, "obstacle": schema.words})
# Answers, by their only key. Errors of the server's measurement are raised here as the same classes.
_ANSWERS = {
    "ok": schema.positive,
    "wrong": schema.text,
    "times": schema.table(
        {"seconds": schema.list_of(_times), "again": _times, "quiet": schema.list_of(schema.boolean)},
    ),
    "crashed": schema.text,
    "timeout": schema.text,
    "error": schema.text,
}
_RAISED = {"crashed": WorkerDiedError, "timeout": TimeoutExceededError, "error": TvmconvError}


@dataclass(frozen=True)
class Description:
    """Description of a server.

    Attributes
    ----------
    host
        Its CPU as a target.
    machine
        Label of its measurements: its CPU and threads, or its GPU and driver; empty if it cannot run the target's code.
    obstacle
        Why it cannot; empty if it can.
    """

    host: CpuTarget
    machine: str
    obstacle: str

    def to_text(self, tvmconv: str) -> str:
        """Return the description as this version's answer to `DESCRIBE`."""
        facts = {"host": _cpu_to_facts(self.host), "machine": self.machine, "obstacle": self.obstacle}
        return json.dumps({"protocol": PROTOCOL, "tvmconv": tvmconv, **facts})


def description_of(value: Any) -> Description:
    """Return a server's description from its answer to `DESCRIBE`; SchemaError if it is malformed."""
    known = _DESCRIPTION(value)
    return Description(**{**known, "host": _cpu_of(known["host"])})


def target_to_text(target: Target | None) -> str:
    """Return a target, or the server's own CPU, as `DESCRIBE` takes it."""
    return json.dumps(_cpu_to_facts(target) if isinstance(target, CpuTarget) else target and target.name)


def target_from_text(text: str) -> Target | None:
    """Return the target of a text by :func:`target_to_text`."""
    value = json.loads(text)
    if value is None:
        return None
    return Target.parse(value) if isinstance(value, str) else _cpu_of(_CPU(value))


def _cpu_to_facts(target: CpuTarget) -> dict[str, Any]:
    return {each.name: getattr(target, each.name) for each in fields(target)} | {"isa": target.isa.name}


def _cpu_of(facts: dict[str, Any]) -> CpuTarget:
    return CpuTarget(**{**facts, "isa": isa_named(facts["isa"])})


def task_to_text(task: Check | Race, libraries: list[Built], seconds: float) -> str:
    """Return the text of a task, with the server's names of its libraries, and its time limit, as `MEASURE` takes it."""
    facts: dict[str, Any] = {
        "problem": format_signature(task.problem),
        "seconds": seconds,
        "libraries": [asdict(library) for library in libraries],
        "cold_bytes": task.cold_bytes,
    }
    if isinstance(task, Check):
        facts |= {"numerical_class": task.numerical_class, "cut_off": task.cut_off if task.cut_off < inf else None}
    return json.dumps(facts)


def task_from_text(text: str, folder: str) -> tuple[Check | Race, float]:
    """Return the task, its libraries in this folder, and its time limit."""
    facts = json.loads(text)
    problem = parse_signature(facts["problem"])
    libraries = tuple(
        Built(f"{folder}/{each['path']}", each["packed"] and tuple(each["packed"]), each["ending"], each["pack"])
        for each in facts["libraries"]
    )
    if "numerical_class" not in facts:
        return Race(problem, libraries, facts["cold_bytes"]), facts["seconds"]
    cut_off = inf if facts["cut_off"] is None else facts["cut_off"]
    check = Check(problem, facts["numerical_class"], libraries[0], cut_off, facts["cold_bytes"])
    return check, facts["seconds"]


def answer_to_text(answer: Measured | Times | TvmconvError) -> str:
    """Return an answer, or an error, as the text that `MEASURE` and `WAIT` return."""
    if isinstance(answer, Times):
        return json.dumps({"times": asdict(answer)})
    if isinstance(answer, Measured):
        return json.dumps({"wrong": answer.wrong} if answer.wrong else {"ok": answer.seconds})
    name = next((name for name, kind in _RAISED.items() if isinstance(answer, kind)), "error")
    return json.dumps({name: str(answer)})


def answer_from_text(text: str, task: Check | Race) -> Measured | Times:
    """Return the answer to a task.

    Raises
    ------
    WorkerDiedError, TimeoutExceededError, TvmconvError
        Errors of measuring.
    SchemaError, ValueError
        If it is no answer to this task.
    """
    ((name, value),) = _named(json.loads(text)).items()
    if name not in _ANSWERS:
        raise ValueError(f"an answer is {name!r}; it must be one of {', '.join(_ANSWERS)}")
    value = _ANSWERS[name](value)
    if name in _RAISED:
        raise _RAISED[name](value)
    if (name == "times") != isinstance(task, Race):
        raise ValueError(f"an answer to {task} is {name!r}")
    if not isinstance(task, Race):
        return Measured(None, value) if name == "wrong" else Measured(value)
    times = Times(**value)
    lengths = {len(each) for each in (*times.seconds, times.again, times.quiet)}
    if len(times.seconds) != len(task.libraries) or len(lengths) != 1:
        raise ValueError(f"an answer has {len(times.seconds)} kernels' times in {sorted(lengths)} placements")
    return times
