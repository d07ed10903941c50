"""Failures that were found, as test cases: a file of problems with their schedules."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from tvmconv.lowering.compiler import Choice
from tvmconv.support.files import write_whole

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PATH = Path(__file__).parents[1] / "numerics" / "regressions.toml"


@dataclass(frozen=True)
class Regression:
    """A kernel that once failed, for a target (a name that `Target.parse` takes), and how."""

    signature: str
    target: str
    choice: Choice
    found: str


def read(path: Path = PATH) -> list[Regression]:
    """Return the cases of a file; none if there is no file."""
    if not path.exists():
        return []
    cases = tomllib.loads(path.read_text()).get("case", [])
    return [
        Regression(
            case["signature"],
            case["target"],
            Choice(case["algorithm"], case["sketch"], tuple(case["decisions"]) if "decisions" in case else None),
            case["found"],
        )
        for case in cases
    ]


def append(found: Regression, path: Path = PATH) -> None:
    """Add a case to a file, unless it is there."""
    if any(
        (each.signature, each.target, each.choice) == (found.signature, found.target, found.choice)
        for each in read(path)
    ):
        return
    choice = found.choice
    lines = [
        "[[case]]",
        f"signature = {json.dumps(found.signature)}",
        f"target = {json.dumps(found.target)}",
        f"algorithm = {json.dumps(choice.algorithm)}",
        f"sketch = {choice.sketch}",
        *([f"decisions = {list(choice.decisions)}"] if choice.decisions is not None else []),
        f"found = {json.dumps(found.found)}",
    ]
    before = path.read_text() + "\n" if path.exists() else ""
    write_whole(path, (before + "\n".join(lines) + "\n").encode())
