"""Explain why a kernel was found or not: every variant with its reason, and the nearest kernel on a miss."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import log
from typing import Any

from ..errors import KernelNotFoundError, TvmconvError, UnsupportedMachineError
from ..problem import Problem
from ..signature import format_signature, parse_signature
from .backend import Device
from .bundle import Bundle, Entry
from .family_kernel import Families
from .selection import Table, backend_of, obstacle, obstacle_on, plural, rank
from .split import Split, find_split


@dataclass(frozen=True, slots=True)
class Variant:
    """A kernel for the signature, and why it was taken or rejected."""

    bundle: str
    target: str
    algorithm: str
    origin: str
    taken: bool
    reason: str
    transferred_from: str | None
    verified: bool | str | None
    skipped: tuple[dict[str, str], ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field in which the nearest kernel's problem differs."""

    field: str
    asked: object
    nearest: object


@dataclass(frozen=True, slots=True)
class Explanation:
    """Variants that the bundles have for a signature, or the nearest ones.

    Attributes
    ----------
    signature
        The requested signature.
    devices
        The devices: ``"this machine's CPU"``, or a GPU such as ``"cuda:0 (NVIDIA H200, sm_90)"``.
    variants
        All kernels of the bundles for it; at most one is taken for each device.
    nearest, differences
        On a miss: the most similar signature that the devices can run (None: there is none), and the
        fields in which it differs.
    command
        On a miss: the command that adds the kernel.
    splits
        On a miss: for each device with kernels for other batches of the same problem, how these serve it with
        ``split_batch=True``, or why they cannot.
    split_batch
        Whether the bundles were loaded with ``split_batch=True``.
    family
        On a miss: the family whose kernel serves it on the CPU; None if there is none.
    families
        On a miss: why the other families with its channels, taps and types do not serve it, and what to do.
    """

    signature: str
    devices: tuple[str, ...]
    variants: tuple[Variant, ...]
    nearest: str | None = None
    differences: tuple[Difference, ...] = ()
    command: str | None = None
    splits: tuple[Split, ...] = ()
    split_batch: bool = False
    family: str | None = None
    families: tuple[str, ...] = ()

    @property
    def found(self) -> bool:
        """Return whether one of the variants is taken, a family serves it, or the batch is split."""
        split = self.split_batch and any(split.obstacle is None for split in self.splits)
        return split or self.family is not None or any(variant.taken for variant in self.variants)


def explain(
    problem: Problem, bundles: Sequence[Bundle], tables: Mapping[Device, Table], split_batch: bool = False
) -> Explanation:
    """Explain which kernels of `bundles` serve `problem` on some devices.

    Parameters
    ----------
    tables
        By device, the result of :func:`tvmconv.runtime.selection.take_best`.
    split_batch
        Whether batches may be split into calls of kernels for other batches.
    """
    signature = format_signature(problem)
    devices = tuple(map(_name, tables))
    variants = tuple(
        _variant(bundle, entry, tables)
        for bundle in bundles
        for entry in bundle.entries
        if entry.signature == signature
    )
    if any(variant.taken for variant in variants):
        return Explanation(signature, devices, variants, split_batch=split_batch)
    found = Families(bundles)
    kernel = found.kernel(problem) if None in tables else None
    if kernel is not None:
        return Explanation(signature, devices, variants, split_batch=split_batch, family=kernel.family)
    reasons = tuple(found.reasons(problem)) if None in tables else ()
    command = f"tvmconv build {signature} {_option(next(iter(tables)))}-o {shlex.quote(str(bundles[0].path))}"
    nearest = _nearest(signature, (candidate for table in tables.values() for candidate in table))
    if nearest is None:
        return Explanation(signature, devices, variants, command=command, split_batch=split_batch, families=reasons)
    splits = tuple(filter(None, (find_split(problem, table, device) for device, table in tables.items())))
    other = parse_signature(nearest)
    pairs = ((field.name, getattr(problem, field.name), getattr(other, field.name)) for field in fields(Problem))
    differences = tuple(Difference(name, asked, has) for name, asked, has in pairs if asked != has)
    return Explanation(
        signature, devices, variants, nearest, differences, command, splits, split_batch, families=reasons
    )


def not_found(explanation: Explanation, device: Device = None) -> TvmconvError:
    """Return the error for a miss on one device."""
    if explanation.variants:
        reasons = "; ".join(f"{v.target} in {v.bundle}: {v.reason}" for v in explanation.variants)
        return UnsupportedMachineError(
            f"{_name(device)} can run no kernel for {explanation.signature} ({reasons}){_by_parts(explanation)}; add one with: {explanation.command}"
        )
    if explanation.families:
        nearest = "; ".join(explanation.families)
    elif explanation.nearest is None:
        nearest = "the bundle is empty" if device is None else f"there are none for {device}"
    else:
        differ = ", ".join(
            f"{d.field} is {_plain(d.nearest)} instead of {_plain(d.asked)}" for d in explanation.differences
        )
        nearest = f"the nearest is {explanation.nearest}, where {differ}"
    on = "" if device is None else f" on {device}"
    return KernelNotFoundError(
        f"no kernel for {explanation.signature}{on}; {nearest}{_by_parts(explanation)}. Add it with: {explanation.command}"
    )


def _by_parts(explanation: Explanation) -> str:
    """Return how kernels for other batches would serve a problem, or why they cannot; empty if there are none."""
    for split in explanation.splits:
        if split.obstacle is None:
            return f"; load(..., split_batch=True) serves it on {split.device} by calls for batch {split}"
    obstacles = [split.obstacle for split in explanation.splits if explanation.split_batch]
    return "".join(f"; {obstacle}" for obstacle in dict.fromkeys(obstacles))


def _name(device: Device) -> str:
    return "this machine's CPU" if device is None else str(device)


def _option(device: Device) -> str:
    return "" if device is None else f"--target cuda:sm_{device.architecture} "


def _variant(bundle: Bundle, entry: Entry, tables: Mapping[Device, Table]) -> Variant:
    """Return an entry as a variant: the devices that take it, or why none does."""
    target = bundle.targets[entry.target]
    taken, rejected = [], []
    for device, table in tables.items():
        if target.kind != backend_of(device).kind:
            continue
        hindrance, best = obstacle_on(target, device), table.get(entry.signature)
        if hindrance is not None:
            rejected.append(hindrance)
        elif entry.verified is False:
            rejected.append("tvmconv verify found it wrong; build it again")
        elif best is None or entry is best[1]:
            taken.append(f"{backend_of(device).fitness(target, device)}, and no better variant was found")
        else:
            advantage = _advantage(rank(*best, device), rank(bundle, entry, device))
            rejected.append(f"{best[1].target} in {best[0].path} is better: {advantage}")
    if not taken and not rejected:
        rejected = [obstacle(target) or f"it is for {plural(target)}, and {_kind_of(tables)} is asked for"]
    reason = "; ".join(taken or rejected)
    return Variant(
        bundle=str(bundle.path),
        target=entry.target,
        algorithm=entry.algorithm,
        origin=entry.origin,
        taken=bool(taken),
        reason=reason,
        transferred_from=entry.transferred_from,
        verified=entry.verified,
        skipped=entry.skipped,
    )


def _kind_of(tables: Mapping[Device, Table]) -> str:
    return "one for CPUs" if None in tables else "one for GPUs"


def _advantage(better: tuple[Any, ...], worse: tuple[Any, ...]) -> str:
    """Return the first criterion of `rank` by which one variant is better than another."""
    if better[0] != worse[0]:
        if isinstance(better[0], int):
            return f"it uses {-better[0]} CPU features, this one {-worse[0]}"
        return "its code is made for an architecture nearer to this GPU's"
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
    """Return the distance of two fields' numbers on a logarithmic scale."""
    ones, others = (re.findall(r"\d+", text) for text in (one, other))
    if len(ones) != len(others):
        return 1.0
    return sum(abs(log((1 + int(a)) / (1 + int(b)))) for a, b in zip(ones, others, strict=True))


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
