"""A schedule's trace as readable steps: one a line, loops by their names and extents, decisions with their values.

TVM can print a trace as Python, in which loops are numbers. Here that program runs again, a statement at a time, and
each loop is named as the function has it at that step.
"""

from __future__ import annotations

import ast
import inspect
from typing import Any

from tvm import tirx
from tvm.s_tir import Schedule
from tvm.s_tir.schedule import LoopRV, SBlockRV

from ..algorithms.definition import Definition

_LONGEST = 60  # characters of a string argument: LLVM IR is cut


def schedule_text(definition: Definition, schedule: Schedule) -> str:
    """Return the steps of `schedule` on a definition's function, each after the block whose loops it changes."""
    replay = _Replay(Schedule(definition.func, seed=1))
    # String arguments contain raw line breaks.
    statements = [ast.parse(line.replace("\n", "\\n")).body[0] for line in schedule.trace.as_python()]
    steps = [step for statement in statements if (step := replay.step(statement))]
    width = max((len(block) for block, _ in steps), default=0)
    return "\n".join(f"{block:<{width}}  {text}".rstrip() for block, text in steps)


class _Replay:
    """A schedule to which a trace's statements are applied, and the names of its random variables."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self._values: dict[str, Any] = {}
        self._blocks: dict[str, str] = {}  # of loops, by their names in the trace
        self._choices: dict[str, str] = {}

    def step(self, statement: Any) -> tuple[str, str] | None:
        """Apply a statement; return its block, and its description. None: it only looks something up."""
        call = statement.value
        method = call.func.attr
        names = [node.id for node in ast.walk(call) if isinstance(node, ast.Name) and node.id != "sch"]
        about = next((block for block in map(self._block, names) if block), "")
        said = [self._said(node, about) for node in call.args]
        said += [
            self._said(each.value, about)
            if isinstance(each.value, ast.Name)
            else f"{each.arg}={self._said(each.value, about)}"
            for each in call.keywords
            if not _is_default(method, each)
        ]
        positional = [self._value(node) for node in call.args]
        named = {each.arg: self._value(each.value) for each in call.keywords}
        if "probs" in named:  # TVM prints a probability of 1 as an integer, and rejects integers
            named["probs"] = [float(each) for each in named["probs"]]
        result = getattr(self._schedule, method)(*positional, **named)
        made = _names(statement)
        results = list(result) if isinstance(statement, ast.Assign) and _is_tuple(statement) else [result]
        self._values |= dict(zip(made, results, strict=False))
        self._blocks |= dict.fromkeys(made, about)
        if method == "sample_categorical":
            return "", self._choice(made[0], call)
        if method.startswith("get_"):
            return None
        arrow = f" -> {', '.join(self._named(name, about) for name in made)}" if made else ""
        return about, f"{method.replace('_', ' ')} {', '.join(said)}{arrow}"

    def _choice(self, name: str, call: Any) -> str:
        """Return a decision's text, and note its name in later steps."""
        number, chosen = len(self._choices), int(self._schedule.get(self._values[name]))
        self._choices[name] = f"{chosen} (choice {number})"
        (candidates,) = (ast.unparse(each.value) for each in call.keywords if each.arg == "candidates")
        return f"choice {number}: {chosen} of {candidates}"

    def _value(self, node: Any) -> Any:
        """Return an argument's value."""
        if isinstance(node, ast.Name):
            return self._values[node.id]
        if isinstance(node, (ast.List, ast.Tuple)):
            values = [self._value(each) for each in node.elts]
            return tuple(values) if isinstance(node, ast.Tuple) else values
        if isinstance(node, ast.Lambda):  # from a buffer's indices to those of another layout
            return eval(ast.unparse(node), {})
        return ast.literal_eval(node)

    def _said(self, node: Any, about: str) -> str:
        """Return an argument's text."""
        if isinstance(node, ast.Name):
            return self._named(node.id, about)
        if isinstance(node, (ast.List, ast.Tuple)):
            return f"[{', '.join(self._said(each, about) for each in node.elts)}]"
        text = ast.unparse(node) if isinstance(node, ast.Lambda) else str(ast.literal_eval(node)).strip()
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST].splitlines()[0]} ... ({len(text)} characters)"

    def _named(self, name: str, about: str) -> str:
        """Return a loop as its name and extent, behind its block if that is another than `about`; a block as its name."""
        value = self._values[name]
        if name in self._choices:
            return self._choices[name]
        if isinstance(value, SBlockRV):
            return str(self._schedule.get(value).name_hint)
        loop = self._schedule.get(value)
        extent = int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else "varies"
        owner = "" if self._blocks[name] == about else f"{self._blocks[name]}."
        return f"{owner}{loop.loop_var.name}({extent})"

    def _block(self, name: str) -> str:
        """Return the block that a loop is around, or that a name stands for."""
        value = self._values[name]
        if isinstance(value, SBlockRV):
            return str(self._schedule.get(value).name_hint)
        return self._blocks[name] if isinstance(value, LoopRV) else ""


def _names(statement: Any) -> list[str]:
    """Return the names that a statement assigns to."""
    if not isinstance(statement, ast.Assign):
        return []
    return [node.id for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)]


def _is_tuple(statement: ast.Assign) -> bool:
    return isinstance(statement.targets[0], ast.Tuple)


def _is_default(method: str, argument: Any) -> bool:
    """Return whether an argument is the default of the schedule's method, or the same in all spaces."""
    if argument.arg == "preserve_unit_loops":  # all spaces set it
        return True
    default = inspect.signature(getattr(Schedule, method)).parameters[argument.arg].default
    return default is not inspect.Parameter.empty and ast.unparse(argument.value) == repr(default)
