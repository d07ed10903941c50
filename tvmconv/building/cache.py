"""The cache of built kernels: outcomes of jobs, keyed by everything that decides their code.

On another model of CPU, a kernel is verified again.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from dataclasses import asdict, astuple
from pathlib import Path

from ..isa.machine import model_name
from ..runtime.bundle import Entry
from ..runtime.kernel_object import KernelObject, Workspace
from ..support.cache import Cache
from ..targets.target import Target
from .fallbacks import BuiltKernel, Job, Outcome, file_of
from .keys import digest


def key_of(job: Job) -> str:
    """Return the key of a job: a digest of everything that decides its outcome."""
    decision = job.decision
    return digest(
        decision.target,
        problem=decision.signature,
        math=decision.math,
        ways=decision.ways,
        checked_on=model_name() if job.check else None,
        entry_points=job.entry_points.value,
        functions=job.keep_functions,
        next_lines=job.next_lines,
    )


def key_of_functions(functions: str, target: Target) -> str:
    """Return the key of the object of a network's functions between kernels, given as TVM's JSON."""
    return digest(target, functions=functions)


def take(known: Cache, jobs: Iterable[Job]) -> tuple[list[Outcome], list[Job]]:
    """Return the outcomes in the cache, their libraries written to the jobs' folders, and the jobs that are left."""
    outcomes, left = [], []
    for job in jobs:
        content = known.read(key_of(job))
        if content is None:
            left.append(job)
        else:
            outcomes.append(_unpack(job, content))
    return outcomes, left


def keep(known: Cache, outcome: Outcome) -> None:
    """Write a job's outcome to the cache, if it is a kernel."""
    if outcome.built is not None:
        known.write(key_of(outcome.job), _pack(outcome, outcome.built))


def _pack(outcome: Outcome, built: BuiltKernel) -> bytes:
    """Return a kernel as a line of its entry and of lengths, then its functions and object, compressed, and its library."""
    library = (Path(outcome.job.folder) / built.entry.file).read_bytes()
    functions = zlib.compress((built.functions or "").encode(), 1)
    code = zlib.compress(built.code.content, 1) if built.code else b""
    sizes = {name: astuple(each) for name, each in built.code.workspaces.items()} if built.code else {}
    lengths = {"functions": len(functions), "code": len(code)}
    known = {"entry": asdict(built.entry), "slow": outcome.slow, "workspaces": sizes, **lengths}
    head = json.dumps(known).encode()
    return b"".join((head, b"\n", functions, code, library))


def _unpack(job: Job, content: bytes) -> Outcome:
    head, _, rest = content.partition(b"\n")
    known = json.loads(head)
    entry = Entry(**{**known["entry"], "skipped": tuple(known["entry"]["skipped"])})
    begin = known["functions"]
    end = begin + known["code"]
    functions, code, library = rest[:begin], rest[begin:end], rest[end:]
    path = Path(job.folder) / file_of(job)
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(library)
    sizes = {name: Workspace(*each) for name, each in known["workspaces"].items()}
    kept = KernelObject(zlib.decompress(code), sizes) if code else None
    built = BuiltKernel(entry, zlib.decompress(functions).decode() or None, kept)
    return Outcome(job, built, entry.skipped, known["slow"])
