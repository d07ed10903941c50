"""`ProblemFamily`: a convolution whose batch and spatial extents are known only when it is called.

Its Problems have the same channels, taps, strides, dilations, groups, layouts, type and epilogue; pads are numbers, or follow from the
extents by a rule. `tvmconv.family_text` formats and parses families.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import lcm
from typing import Any

from . import ops
from .checks import LARGEST, axes, choice, integer
from .epilogue import Step, parse_epilogue
from .errors import InvalidProblemError
from .problem import OPS, Op, Problem

_EXTENT = re.compile(
    r"(?:\?|(?P<name>[a-wyz][a-wyz0-9_]*))?(?:%(?P<multiple>[1-9][0-9]*))?(?:\[(?P<low>[0-9]+):(?P<high>[0-9]*)\])?"
)
_RULES = ("same_upper", "same_lower", "?")
# Fields that all problems of a family share.
_STATIC = (
    "op",
    "in_channels",
    "out_channels",
    "kernel",
    "dilations",
    "groups",
    "data_format",
    "filter_format",
    "dtype",
    "zero_point",
    "filter_zero_point",
    "bias_dtype",
    "bias",
    "epilogue",
)
# Extents, where the family allows them, of its typical problem and of those that check its kernels, with so many operations at most.
_TYPICAL, _EXAMPLES, _EXAMPLE_FLOPS = 64, (1, 5, 13, 29, 53), 1_000_000_000
# Extents of images by which the algorithm is chosen; other ranks take those with as many pixels.
_SIZES = (7, 14, 28, 56, 112, 224)


@dataclass(frozen=True, slots=True)
class Extent:
    """Extent along an axis: a number, or any of a range.

    Attributes
    ----------
    low, high
        The least and the greatest extent; if equal, the extent is fixed.
    multiple
        Number that divides the extent.
    name
        Extents of one name are equal; empty: no name.
    """

    low: int = 1
    high: int = LARGEST
    multiple: int = 1
    name: str = ""

    def __post_init__(self) -> None:
        multiples = self.high // self.multiple * self.multiple if self.multiple > 0 else -1
        if not 0 <= self.low <= self.high <= LARGEST or multiples < self.low:
            raise InvalidProblemError(
                f"no extent is from {self.low} to {self.high} and a multiple of {self.multiple}; give a minimum and a maximum, 0 to {LARGEST}"
            )

    @staticmethod
    def parse(text: str) -> Extent:
        """Return the extent of a text such as ``64``, ``?``, ``h``, ``?%32``, ``[32:4096]``, ``w%8[8:]``.

        Raises
        ------
        InvalidProblemError
            If the text is no extent.
        """
        if re.fullmatch(r"[0-9]{1,10}", text, re.ASCII):
            return Extent.of(int(text))
        match = _EXTENT.fullmatch(text)
        if not text or match is None:
            advice = "a number, ?, a name without x (h), ?%32 (a multiple), ?[32:4096] (a range)"
            if "," in text:
                advice = f"x between extents: {text.replace(',', 'x')}"
            raise InvalidProblemError(f"{text!r} is not an extent; write {advice}")
        found = match.groupdict()
        multiple, low = int(found["multiple"] or 1), int(found["low"] or 1)
        return Extent(low, int(found["high"] or LARGEST), multiple, found["name"] or "")

    @staticmethod
    def of(value: int | Extent) -> Extent:
        """Return a number as a fixed extent, and an extent as it is."""
        return value if isinstance(value, Extent) else Extent(value, value)

    @property
    def is_free(self) -> bool:
        """Return whether more than one extent is allowed."""
        return self.low != self.high

    def near(self, value: int) -> int:
        """Return an allowed extent near `value`."""
        value = min(max(self.low, value), self.high) // self.multiple * self.multiple
        return value if value >= self.low else value + self.multiple

    def obstacle(self, value: int) -> str | None:
        """Return why an extent is not allowed, and a remedy; None if it is."""
        if not self.low <= value <= self.high:
            return f"is {value}; it must be {self}" + ("" if self.is_free else ", a number")
        if value % self.multiple:
            more = -value % self.multiple
            return f"is {value}, no multiple of {self.multiple}; pad it by {more} to {value + more}"
        return None

    def __str__(self) -> str:
        if not self.is_free:
            return str(self.low)
        limits = (
            "" if (self.low, self.high) == (1, LARGEST) else f"[{self.low}:{'' if self.high == LARGEST else self.high}]"
        )
        multiple = f"%{self.multiple}" if self.multiple > 1 else ""
        return f"{self.name or ('' if limits and not multiple else '?')}{multiple}{limits}"


def _unite(extents: Sequence[Extent]) -> list[Extent]:
    """Return extents, those of one name with the limits and the multiples of all; InvalidProblemError if there is no such extent."""
    found = []
    for extent in extents:
        same = [each for each in extents if each.name == extent.name] if extent.name else [extent]
        low, high = max(each.low for each in same), min(each.high for each in same)
        found.append(Extent(low, high, lcm(*(each.multiple for each in same)), extent.name))
    return found


@dataclass(frozen=True)
class ProblemFamily:
    """Problems that differ in their extents alone.

    Attributes
    ----------
    batch, in_spatial
        The extents that are allowed.
    pads
        ``(begin, end)``, each with a number for each axis; ``"same_upper"`` or ``"same_lower"``; or ``"?"``: each problem has its own,
        as for a transposed convolution whose output extents are an argument.
    output_padding
        That of a transposed convolution whose pads are numbers.
    op, in_channels, out_channels, kernel, strides, dilations, groups, data_format, filter_format, dtype, bias, epilogue, zero_point, \
    filter_zero_point, bias_dtype
        As of :class:`tvmconv.Problem`.

    Raises
    ------
    InvalidProblemError
        If there is no such problem.
    """

    op: Op
    batch: Extent
    in_channels: int
    in_spatial: tuple[Extent, ...]
    out_channels: int
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: str | tuple[tuple[int, ...], tuple[int, ...]]
    groups: int = 1
    data_format: str = "NXC"
    filter_format: str = "XIO"
    dtype: str = "f32"
    bias: bool = False
    epilogue: tuple[Step, ...] = ()
    output_padding: tuple[int, ...] = ()
    zero_point: int = 0
    filter_zero_point: int = 0
    bias_dtype: str = ""

    def __post_init__(self) -> None:
        rank = len(self.in_spatial)
        choice("op", self.op, OPS)
        integer("groups", self.groups, 1)
        batch, *spatial = _unite((self.batch, *self.in_spatial))
        object.__setattr__(self, "batch", batch)
        object.__setattr__(self, "in_spatial", tuple(spatial))
        for name in ("kernel", "dilations"):
            object.__setattr__(self, name, axes(name, getattr(self, name), rank, 0))
        object.__setattr__(self, "epilogue", parse_epilogue(self.epilogue))
        object.__setattr__(self, "output_padding", self.output_padding or (0,) * rank)
        if self.op == "convolution" and any(self.output_padding):
            raise InvalidProblemError(
                f"output_padding is {list(self.output_padding)}; only transposed convolutions have one"
            )
        if isinstance(self.pads, str) and (self.pads not in _RULES or any(self.output_padding)):
            raise InvalidProblemError(
                f"pads are {self.pads!r}; give numbers, or without output_padding one of {', '.join(_RULES)}"
            )
        if self.op != "convolution" and self.pads in _RULES[:2]:
            raise InvalidProblemError(f"pads are {self.pads!r}; for a transposed convolution give zeros")
        if min((*self.kernel, self.in_channels, self.out_channels)) < 1:
            raise InvalidProblemError("a family needs at least one tap and one channel; otherwise build each problem")
        object.__setattr__(
            self, "dilations", tuple(1 if k == 1 else d for k, d in zip(self.kernel, self.dilations, strict=True))
        )
        # Raises where there is no such problem.
        object.__setattr__(self, "bias_dtype", self.typical.bias_dtype)

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return len(self.in_spatial)

    @property
    def typical(self) -> Problem:
        """A problem of the family whose free extents are about 64."""
        return self.problem(*self._extents_near(_TYPICAL))

    def _extents_near(self, size: int) -> tuple[int, list[int]]:
        spans = [d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True)]
        spatial = [each.near(max(size, span)) for each, span in zip(self.in_spatial, spans, strict=True)]
        return self.batch.near(1), spatial

    def sizes(self) -> tuple[Problem, ...]:
        """Return small and large problems of the family, by which the algorithm is chosen."""
        found: dict[Problem, None] = {}
        for size in _SIZES:
            with suppress(InvalidProblemError):  # too large
                found[self.problem(*self._extents_near(round(size ** (2 / self.rank))))] = None
        return tuple(found) or (self.typical,)

    def problem(self, batch: int, in_spatial: Sequence[int], like: Problem | None = None) -> Problem:
        """Return the problem with these extents, even outside the family's ranges; free pads are those of `like`, or the least.

        Raises
        ------
        InvalidProblemError
            If there is none, for example because the filter is larger than the padded data.
        """
        convolution = self.op == "convolution"
        outputs, inputs = (
            (self.out_channels, self.in_channels) if convolution else (self.in_channels, self.out_channels)
        )
        oix = self.filter_format == "OIX"
        taps = (outputs, inputs // self.groups, *self.kernel) if oix else (*self.kernel, inputs // self.groups, outputs)
        nxc = self.data_format == "NXC"
        shape = (batch, *in_spatial, self.in_channels) if nxc else (batch, self.in_channels, *in_spatial)
        pads: dict[str, Any] = {"auto_pad": self.pads}
        if self.pads == "?":
            sizes = zip(self.kernel, self.dilations, in_spatial, strict=True)
            least = tuple(max(d * (k - 1) + 1 - x, 0) if convolution else 0 for k, d, x in sizes)
            begin, end = (like.pads_begin, like.pads_end) if like else ((0,) * self.rank, least)
            pads = {"pads_begin": begin, "pads_end": end}
            if like and not convolution:
                pads["output_padding"] = like.output_padding
        elif not isinstance(self.pads, str):
            pads = {"pads_begin": self.pads[0], "pads_end": self.pads[1]}
            if not convolution:
                pads["output_padding"] = self.output_padding
        resolve: Any = ops.convolution if convolution else ops.convolution_backprop_data
        return resolve(
            shape, taps, strides=self.strides, dilations=self.dilations, groups=self.groups, data_format=self.data_format,
            filter_format=self.filter_format, dtype=self.dtype, bias_shape=(self.out_channels,) if self.bias else None,
            epilogue=self.epilogue or None, zero_point=self.zero_point, filter_zero_point=self.filter_zero_point,
            bias_dtype=self.bias_dtype, **pads,
        )  # fmt: skip

    def examples(self) -> tuple[Problem, ...]:
        """Return problems to check kernels with: from one pixel, if allowed, to several tiles, by prime extents."""
        found: dict[Problem, None] = {}
        for number, size in enumerate(_EXAMPLES):
            named: dict[str, int] = {}
            spatial = [
                named.setdefault(
                    each.name or str(axis), each.near((size + 6 * axis) * each.multiple if size > 1 else 1)
                )
                for axis, each in enumerate(self.in_spatial)
            ]
            try:
                problem = self.problem(self.batch.near(1 + number % 3), spatial)
            except InvalidProblemError:
                continue
            if not self.obstacle(problem) and problem.flops <= _EXAMPLE_FLOPS and not problem.is_constant:
                found[problem] = None
        return tuple(found) or (self.typical,)

    def is_like(self, problem: Problem) -> bool:
        """Return whether a problem differs from the family's at most in extents, strides and pads."""
        return all(getattr(self, name) == getattr(problem, name) for name in _STATIC)

    def obstacle(self, problem: Problem) -> str | None:
        """Return why a problem is not in this family, and a remedy; None if it is."""
        for name in _STATIC:
            ours, given = getattr(self, name), getattr(problem, name)
            if ours != given:
                return f"{name} is {given}, and the family's {ours}"
        named: dict[str, tuple[str, int]] = {}
        extents = [("batch", self.batch, problem.batch)]
        extents += [
            (f"spatial axis {axis}", *each)
            for axis, each in enumerate(zip(self.in_spatial, problem.in_spatial, strict=True))
        ]
        for where, extent, value in extents:
            if reason := extent.obstacle(value):
                return f"{where} {reason}"
            other, first = named.setdefault(extent.name or where, (where, value))
            if first != value:
                return (
                    f"{where} is {value} and {other} {first}, both {extent.name}, which is one extent: pad the smaller"
                )
        try:
            ours = self.problem(problem.batch, problem.in_spatial, problem)
        except InvalidProblemError as error:
            return str(error)
        wrong = [
            name
            for name in ("strides", "pads_begin", "pads_end", "out_spatial")
            if getattr(ours, name) != getattr(problem, name)
        ]
        return (
            "; ".join(
                f"{name} is {list(getattr(problem, name))}, and the family's {list(getattr(ours, name))}"
                for name in wrong
            )
            or None
        )
