"""Axes and marks of the charts, as text of SVG."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from itertools import count, takewhile
from math import ceil, floor, log10

# Most labels on an axis that are easy to read.
LABELS = 8
# Number of distinguishable series: each has a colour of its own (`--s0` to `--s7` in page.css) and a shape.
COLOURS = 8
SHAPES = (
    "M-4.5,0A4.5,4.5 0 1,0 4.5,0A4.5,4.5 0 1,0 -4.5,0Z",
    "M-4,-4H4V4H-4Z",
    "M0,-5.4L5.4,0L0,5.4L-5.4,0Z",
    "M0,-5.2L5,4H-5Z",
    "M0,5.2L5,-4H-5Z",
)


@dataclass(frozen=True)
class Scale:
    """Values `low` to `high` along pixels `start` to `end`, by their logarithm unless `linear`."""

    low: float
    high: float
    start: float
    end: float
    linear: bool = False

    def __call__(self, value: float) -> float:
        """Return the position of `value` in pixels."""
        if self.linear:
            share = (value - self.low) / (self.high - self.low)
        else:
            share = log10(value / self.low) / log10(self.high / self.low)
        return self.start + share * (self.end - self.start)

    @property
    def ticks(self) -> list[float]:
        """Round values to label."""
        if self.linear:
            return self._steps()
        decades = range(floor(log10(self.low)), ceil(log10(self.high)) + 1)
        for digits in ((1, 2, 5), (1, 3), (1,)):
            found = [digit * 10.0**decade for decade in decades for digit in digits]
            found = [value for value in found if self.low <= value <= self.high]
            if len(found) <= LABELS:
                break
        # Within less than a decade, even steps have more round values.
        return found if len(found) > 2 else self._steps()

    def _steps(self) -> list[float]:
        rough = (self.high - self.low) / (LABELS / 2)
        power = 10.0 ** floor(log10(rough))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
        first = ceil(self.low / step)
        return list(takewhile(lambda value: value <= self.high * (1 + 1e-9), (step * n for n in count(first))))


def grid(x: Scale, y: Scale, x_label: str, y_label: str) -> str:
    """Return the lines and labels of two axes; `y` begins at the bottom."""
    parts = []
    for value in x.ticks:
        at = x(value)
        parts.append(f'<path class="grid" d="M{at:.1f},{y.start:.1f}V{y.end:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{at:.1f}" y="{y.start + 16:.1f}" text-anchor="middle">{_number(value)}</text>'
        )
    for value in y.ticks:
        at = y(value)
        parts.append(f'<path class="grid" d="M{x.start:.1f},{at:.1f}H{x.end:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{x.start - 6:.1f}" y="{at + 4:.1f}" text-anchor="end">{_number(value)}</text>'
        )
    parts.append(f'<path class="axis" d="M{x.start:.1f},{y.end:.1f}V{y.start:.1f}H{x.end:.1f}"/>')
    middle = (x.start + x.end) / 2
    parts.append(
        f'<text class="label" x="{middle:.1f}" y="{y.start + 34:.1f}" text-anchor="middle">{escape(x_label)}</text>'
    )
    parts.append(f'<text class="label" x="2" y="{y.end - 8:.1f}">{escape(y_label)}</text>')
    return "".join(parts)


def mark(series: int, x: float, y: float, hint: str) -> str:
    """Return the mark of a series, with `hint` as its tooltip."""
    title = f"<title>{escape(hint)}</title>" if hint else ""
    shape = SHAPES[series % len(SHAPES)]
    return f'<path class="mark s{series % COLOURS}" transform="translate({x:.1f},{y:.1f})" d="{shape}">{title}</path>'


def drawing(width: int, height: int, what: str, content: str) -> str:
    """Return the drawing; `what` describes it in words."""
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(what)}">{content}</svg>'


def _number(value: float) -> str:
    return f"{value:.12g}" if 1e-4 <= abs(value) < 1e7 or value == 0 else f"{value:.0e}"
