"""Why a kernel was found or not: every variant with its reason, and the nearest kernel on a miss."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import log

from .bundle import Bundle, Entry
from .errors import KernelNotFoundError, TvmconvError, UnsupportedMachineError
from .problem import Problem
from .selection import obstacle, rank
from .signature import format_signature, parse_signature


@dataclass(frozen=True, slots=True)
class Variant:
    """One kernel for the asked signature, and why it was taken or rejected."""

    bundle: str
    target: str
    algorithm: str
    origin: str
    taken: bool
    reason: str
    transferred_from: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of the asked problem that the nearest kernel has otherwise."""

    field: str
    asked: object
    nearest: object


@dataclass(frozen=True, slots=True)
class Explanation:
    """What the bundles have for a signature.

    Attributes
    ----------
    signature
        What was asked for.
    variants
        Every kernel of the bundles for it; at most one is taken.
    nearest, differences
        On a miss: the most similar signature that this machine can run (None: there is none), and the
        fields in which it differs.
    command
        On a miss: the command that adds the kernel.
    """

    signature: str
    variants: tuple[Variant, ...]
    nearest: str | None = None
    differences: tuple[Difference, ...] = ()
    command: str | None = None

    @property
    def found(self) -> bool:
        """Whether one of the variants is taken."""
        return any(variant.taken for variant in self.variants)


def explain(problem: Problem, bundles: Sequence[Bundle], taken: Mapping[str, tuple[Bundle, Entry]]) -> Explanation:
    """Explain what `bundles` have for `problem`, where `taken` is what :func:`tvmconv.selection.take_best` gave."""
    signature = format_signature(problem)
    best = taken.get(signature)
    variants = tuple(
        _variant(bundle, entry, best) for bundle in bundles for entry in bundle.entries if entry.signature == signature
    )
    if best is not None:
        return Explanation(signature, variants)
    command = f"tvmconv build {signature} -o {shlex.quote(str(bundles[0].path))}"
    nearest = _nearest(signature, taken)
    if nearest is None:
        return Explanation(signature, variants, command=command)
    other = parse_signature(nearest)
    pairs = ((field.name, getattr(problem, field.name), getattr(other, field.name)) for field in fields(Problem))
    differences = tuple(Difference(name, asked, has) for name, asked, has in pairs if asked != has)
    return Explanation(signature, variants, nearest, differences, command)


def not_found(explanation: Explanation) -> TvmconvError:
    """Return the error for a miss."""
    if explanation.variants:
        reasons = "; ".join(f"{v.target} in {v.bundle}: {v.reason}" for v in explanation.variants)
        return UnsupportedMachineError(
            f"this machine can run no kernel for {explanation.signature} ({reasons}); add one with: {explanation.command}"
        )
    if explanation.nearest is None:
        nearest = "the bundle is empty"
    else:
        differ = ", ".join(
            f"{d.field} is {_plain(d.nearest)} instead of {_plain(d.asked)}" for d in explanation.differences
        )
        nearest = f"the nearest is {explanation.nearest}, where {differ}"
    return KernelNotFoundError(f"no kernel for {explanation.signature}; {nearest}. Add it with: {explanation.command}")


def _variant(bundle: Bundle, entry: Entry, best: tuple[Bundle, Entry] | None) -> Variant:
    target = bundle.targets[entry.target]
    hindrance = obstacle(target)
    taken = best is not None and entry is best[1]
    if hindrance is not None:
        reason = hindrance
    elif taken or best is None:
        reason = f"this machine has the {len(target.features)} CPU features it needs, and no better variant was found"
    else:
        reason = f"{best[1].target} in {best[0].path} is better: {_advantage(rank(*best), rank(bundle, entry))}"
    return Variant(str(bundle.path), entry.target, entry.algorithm, entry.origin, taken, reason, entry.transferred_from)


def _advantage(better: tuple[float, ...], worse: tuple[float, ...]) -> str:
    """Say by which item of their ranks one variant is better than another."""
    if better[0] != worse[0]:
        return f"it uses {-better[0]} CPU features, this one {-worse[0]}"
    if better[1] != worse[1]:
        return "it is tuned for this problem" if better[1] == 0 else "it is tuned for a problem like this"
    return "it was measured faster" if better[2] != worse[2] else "it comes first"


def _nearest(signature: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate of the same operation, if any, with the fewest differing fields, then the closest numbers."""
    asked = signature.split("-")

    def distance(candidate: str) -> tuple[int, int, float]:
        has = candidate.split("-")
        differing = [(a, b) for a, b in zip(asked, has, strict=False) if a != b]
        count = len(differing) + abs(len(asked) - len(has))
        return (asked[0] != has[0], count, sum(_far(a, b) for a, b in differing))

    return min(candidates, key=distance, default=None)


def _far(one: str, other: str) -> float:
    """Return how far the numbers of two fields are apart, on a logarithmic scale."""
    ones, others = (re.findall(r"\d+", text) for text in (one, other))
    if len(ones) != len(others):
        return 1.0
    return sum(abs(log((1 + int(a)) / (1 + int(b)))) for a, b in zip(ones, others, strict=True))


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
