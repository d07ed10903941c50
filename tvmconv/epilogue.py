"""Epilogues: steps on a sum and its bias before it is rounded and stored.

An epilogue is an ordered list of steps, each computed in f32. As text, steps are joined by hyphens and followed by their
numbers: ``add-relu``, ``scale-clip(0,6)``. Signatures name files, so they write ``scale-clip_0_6``; both forms are read.
docs/semantics.md has the formulas.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isinf, isnan

import numpy as np

from .errors import InvalidProblemError

# Names of the numbers that each step takes.
STEPS: dict[str, tuple[str, ...]] = {
    "scale": (),
    "add": (),
    "relu": (),
    "clip": ("lo", "hi"),
    "leaky": ("a",),
    "prelu": (),
    "elu": ("a",),
    "sigmoid": (),
    "tanh": (),
    "hardsigmoid": ("a", "b"),
    "silu": (),
    "hardswish": (),
    "gelu": (),
    "gelu_tanh": (),
}
# Steps that round to integers of 8 bits, in problems with integers: only the last step may be one.
QUANTIZERS = dict.fromkeys(("q", "q_reciprocal", "q_before", "q_before_reciprocal"), ("scale", "zero_point"))
NUMBERS = STEPS | QUANTIZERS
# Kernel argument that a step takes an array from.
OPERANDS = {"scale": "scale", "prelu": "slope", "add": "residual"}
# Steps approximated by polynomials; all others have one correctly rounded result.
APPROXIMATED = ("elu", "sigmoid", "tanh", "silu", "gelu", "gelu_tanh")
# Steps of these with a shorter approximation, used where the value is rounded to 16 bits next.
SHORT = ("sigmoid", "silu", "gelu", "gelu_tanh")
# Steps that map all large sums to about the same value.
SATURATING = ("clip", "sigmoid", "tanh", "hardsigmoid", "hardswish")
_NUMBER = r"-?(?:inf|[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)"
# Longer names first: gelu_tanh begins with gelu.
_STEP = re.compile(rf"({'|'.join(sorted(NUMBERS, key=len, reverse=True))})((?:_{_NUMBER})*)(?:-|$)")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its name and its numbers, which are f32's."""

    name: str
    numbers: tuple[float, ...] = ()

    def __str__(self) -> str:
        return "_".join((self.name, *map(_text, self.numbers)))


def parse_epilogue(epilogue: str | Iterable[Step] | None) -> tuple[Step, ...]:
    """Return the canonical steps of an epilogue, equal for all ways to write the same one.

    Steps that change nothing are left out, and neighbouring bounds (relu is ``clip(0, inf)``) become one.

    Parameters
    ----------
    epilogue
        A text such as ``"add-relu"``, steps, or None for no epilogue.

    Raises
    ------
    InvalidProblemError
        If a step is unknown, has the wrong numbers, or takes an array that another step takes already.
    """
    if epilogue is None:
        return ()
    if not isinstance(epilogue, Iterable):
        raise InvalidProblemError(f"epilogue is {epilogue!r}; it must be a string such as 'add-relu'")
    steps = _split(epilogue) if isinstance(epilogue, str) else tuple(epilogue)
    for step in steps:
        if not isinstance(step, Step):
            raise InvalidProblemError(f"epilogue has {step!r}; it must be a string such as 'add-relu'")
    canonical: list[Step] = []
    for step in map(_check, steps):
        bounds, before = _bounds(step), _bounds(canonical[-1]) if canonical else None
        if bounds is not None:
            lo, hi = bounds
            if before is not None:
                canonical.pop()
                lo, hi = (min(max(end, lo), hi) for end in before)
            step = Step("relu") if (lo, hi) == (0, inf) else Step("clip", (lo, hi))
        if step not in (Step("clip", (-inf, inf)), Step("leaky", (1.0,))):
            canonical.append(step)
    for step in canonical[:-1]:
        if step.name in QUANTIZERS:
            raise InvalidProblemError(
                f"epilogue is {format_epilogue(canonical)!r}; {step} rounds to integers: it must be the last step"
            )
    for name, array in OPERANDS.items():
        if sum(step.name == name for step in canonical) > 1:
            raise InvalidProblemError(
                f"epilogue is {format_epilogue(canonical)!r}; {name} takes the array {array}, so it may occur only once"
            )
    return tuple(canonical)


def format_epilogue(steps: Iterable[Step]) -> str:
    """Return the text of steps, as signatures have it."""
    return "-".join(map(str, steps))


def is_exact(steps: Iterable[Step]) -> bool:
    """Return whether no step is approximated."""
    return all(step.name not in APPROXIMATED for step in steps)


def _split(text: str) -> tuple[Step, ...]:
    plain = re.sub(r"\(([^()]*)\)", lambda found: "_" + found[1].replace(",", "_").replace(" ", ""), text)
    steps, at = [], 0
    while at < len(plain) or not plain:
        match = _STEP.match(plain, at)
        if match is None or (match.end() == len(plain) and plain.endswith("-")):
            allowed = ", ".join(
                f"{name}({','.join(numbers)})" if numbers else name for name, numbers in NUMBERS.items()
            )
            raise InvalidProblemError(
                f"epilogue is {text!r}; {plain[at:]!r} is not a step, or has the wrong numbers: allowed, joined by hyphens, are {allowed}"
            )
        steps.append(Step(match[1], tuple(map(float, match[2].split("_")[1:]))))
        at = match.end()
    return tuple(steps)


def _check(step: Step) -> Step:
    """Return a step with its numbers rounded to f32; raise InvalidProblemError if it is unknown or has wrong numbers."""
    names = NUMBERS.get(step.name)
    if names is None:
        raise InvalidProblemError(f"epilogue has the step {step.name!r}; allowed: {', '.join(NUMBERS)}")
    if len(step.numbers) != len(names):
        takes = f"{step.name}({','.join(names)})" if names else f"{step.name}, without numbers"
        raise InvalidProblemError(f"epilogue has {str(step)!r}; write {takes}")
    with np.errstate(over="ignore"):
        numbers = tuple(float(np.float32(number)) + 0.0 for number in step.numbers)  # -0 is 0
    if any(map(isnan, numbers)) or (step.name != "clip" and any(map(isinf, numbers))):
        raise InvalidProblemError(f"epilogue has {str(step)!r}; its numbers must be finite f32 numbers")
    if step.name == "clip" and not (numbers[0] <= numbers[1] and numbers[0] < inf and numbers[1] > -inf):
        raise InvalidProblemError(
            f"epilogue has {str(step)!r}; clip(lo,hi) takes lo <= hi, lo below inf, hi above -inf"
        )
    if step.name in QUANTIZERS and not (numbers[0] > 0 and numbers[1].is_integer()):
        raise InvalidProblemError(
            f"epilogue has {str(step)!r}; {step.name}(scale,zero_point) takes a positive scale and an integer as zero point"
        )
    return Step(step.name, numbers)


def _bounds(step: Step) -> tuple[float, float] | None:
    """Return the bounds of a step that clips; None for other steps."""
    if step.name == "relu":
        return 0.0, inf
    return (step.numbers[0], step.numbers[1]) if step.name == "clip" else None


def _text(number: float) -> str:
    """Return the shortest text that reads back as the same f32 number."""
    with np.errstate(over="ignore"):
        return str(np.float32(number)).removesuffix(".0").replace("e+", "e")
