"""The roofline: each kernel's speed below the limits of the machine's multiply-adds and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import atan2, degrees

from ..building.bench import BenchRow
from ..measuring.peak import Peak
from ..signature import parse_signature
from .kernels import roof, seconds
from .svg import Scale, drawing, grid, mark

WIDTH, HEIGHT = 960, 470
LEFT, RIGHT, TOP, BOTTOM = 64, 944, 30, 424
# Margin beyond the outermost points, as a factor.
ROOM = 1.6


def draw_roofline(rows: Sequence[BenchRow], limits: Peak | None, anchors: Mapping[tuple[str, str], str]) -> str:
    """Return the chart of at least one row, all with operations, and its legend.

    Points link to the `anchors` of signature and target.
    """
    x, y = _axes(rows, limits)
    content = [grid(x, y, "operations of the formula / bytes read and written at the least (FLOP/byte)", "GFLOP/s")]
    if limits is not None:
        content.append(_roofs(x, y, limits, any(parse_signature(row.signature).dtype == "bf16" for row in rows)))
    algorithms = sorted({row.algorithm for row in rows})
    for row in rows:
        point = mark(algorithms.index(row.algorithm), x(row.flops / row.nbytes), y(_rate(row)), _hint(row, limits))
        content.append(f'<a href="#{anchors[row.signature, row.target]}">{point}</a>')
    keys = "".join(
        f'<span><svg class="key" viewBox="-7 -7 14 14" aria-hidden="true">{mark(number, 0, 0, "")}</svg>{escape(name)}</span>'
        for number, name in enumerate(algorithms)
    )
    what = f"Roofline of {len(rows)} kernels: GFLOP/s against FLOP/byte, both logarithmic"
    return f'<div class="chart">{drawing(WIDTH, HEIGHT, what, "".join(content))}</div><p class="legend">{keys}</p>'


def _rate(row: BenchRow) -> float:
    return row.flops / seconds(row) / 1e9


def _axes(rows: Sequence[BenchRow], limits: Peak | None) -> tuple[Scale, Scale]:
    intensities, rates = [row.flops / row.nbytes for row in rows], [_rate(row) for row in rows]
    if limits is not None:
        # The peaks, and the corner of the first with memory's bandwidth, are always visible.
        intensities.append(limits.flops / limits.bandwidth)
        peaks = (limits.of(parse_signature(row.signature).dtype) for row in rows)
        rates += [limits.flops / 1e9, *(each / 1e9 for each in peaks if each)]
    x = Scale(min(intensities) / ROOM, max(intensities) * ROOM, LEFT, RIGHT)
    return x, Scale(min(rates) / ROOM, max(rates) * ROOM, BOTTOM, TOP)


def _roofs(x: Scale, y: Scale, limits: Peak, bf16: bool) -> str:
    """Return the lines of both peaks and both bandwidths, each with its label."""
    peaks = [(limits.flops / 1e9, "multiply-adds in f32")]
    if bf16 and limits.bf16_flops:
        peaks.append((limits.bf16_flops / 1e9, "multiply-adds in bf16"))
    highest = max(peak for peak, _ in peaks)
    bandwidths = [(limits.bandwidth / 1e9, "memory", ""), (limits.cache_bandwidth / 1e9, "cache", " dashed")]
    parts = []
    for peak, name in peaks:
        start = max(x.low, peak / max(limits.cache_bandwidth, limits.bandwidth) * 1e9)
        at = y(peak)
        parts.append(f'<path class="roof" d="M{x(min(start, x.high)):.1f},{at:.1f}H{x.end:.1f}"/>')
        parts.append(
            f'<text class="note" x="{x.end:.1f}" y="{at - 6:.1f}" text-anchor="end">{name}: {peak:.1f} GFLOP/s</text>'
        )
    for bandwidth, name, style in bandwidths:
        start, end = max(x.low, y.low / bandwidth), min(x.high, highest / bandwidth)
        if start >= end:  # all points are right of the cache's corner
            continue
        left, right, low, high = x(start), x(end), y(start * bandwidth), y(end * bandwidth)
        angle = degrees(atan2(high - low, right - left))
        parts.append(f'<path class="roof{style}" d="M{left:.1f},{low:.1f}L{right:.1f},{high:.1f}"/>')
        parts.append(
            f'<text class="note" transform="translate({left:.1f},{low:.1f}) rotate({angle:.1f})" x="10" y="-6">'
            f"{name}: {bandwidth:.1f} GB/s</text>"
        )
    return "".join(parts)


def _hint(row: BenchRow, limits: Peak | None) -> str:
    limit = roof(row, limits)
    share = "" if limit is None else f", {row.flops / seconds(row) / limit:.0%} of the roof"
    return (
        f"{row.signature}\n{row.algorithm} for {row.target}, {row.origin}\n"
        f"{seconds(row) * 1e6:.1f} us, {_rate(row):.1f} GFLOP/s{share}\n{row.flops / row.nbytes:.1f} FLOP/byte"
    )
