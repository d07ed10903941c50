"""The table of a comparison: a row with its ratio and a bar for each kernel, the greatest losses first."""

from __future__ import annotations

from collections import Counter
from math import log2

from .comparison import EVEN, Comparison, Pair
from .kernel_table import signature_cell
from .table import Cell, Column, draw_table, number, words

# Half the width of a bar's cell, and the least ratio that fills it, so that small differences look small.
HALF, FULL = 70, 2.0


def draw_comparison(comparison: Comparison) -> str:
    """Return a summary, and the table."""
    pairs = sorted(comparison.pairs, key=lambda pair: pair.ratio)
    columns = [
        Column("signature", "the problem", numeric=False),
        Column("algorithm", "of this bundle's kernel", numeric=False),
        Column("us", "microseconds of a call of this bundle's kernel"),
        Column("other bundle", numeric=False),
        Column("its us", "microseconds of a call of it"),
        Column("ratio", "its time / this bundle's: above 1, this bundle is faster"),
        Column("slower | faster", "the ratio, by its logarithm; right: this bundle is faster"),
    ]
    widest = max(FULL, *(max(pair.ratio, 1 / pair.ratio) for pair in pairs))
    lines = [(f"c{index}", _cells(pair, widest)) for index, pair in enumerate(pairs)]
    return f"{_summary(comparison, pairs)}{draw_table('comparison', columns, lines)}"


def _cells(pair: Pair, widest: float) -> list[Cell]:
    return [
        signature_cell(pair.signature),
        words(pair.algorithm),
        number(pair.ours, 1e6),
        words(pair.name),
        number(pair.theirs, 1e6),
        Cell(f'<span class="{_style(pair)}">{pair.ratio:.2f}</span>', pair.ratio),
        Cell(_bar(pair, widest), pair.ratio),
    ]


def _style(pair: Pair) -> str:
    return {1: "good", 0: "muted", -1: "bad"}[pair.verdict]


def _bar(pair: Pair, widest: float) -> str:
    length = HALF * log2(pair.ratio) / log2(widest)
    return (
        f'<svg class="bar {_style(pair)}" viewBox="{-HALF} 0 {2 * HALF} 14" aria-hidden="true">'
        f'<rect x="{min(length, 0):.1f}" y="2" width="{abs(length):.1f}" height="10"/><path d="M0,0V14"/></svg>'
    )


def _summary(comparison: Comparison, pairs: list[Pair]) -> str:
    verdicts = Counter(pair.verdict for pair in pairs)
    count, worst, best = len(pairs), pairs[0], pairs[-1]
    return (
        "<p>Both bundles were timed here, in turn, on the same arrays; filters are prepacked where they can be.</p>"
        f"<p>Geometric mean of the ratios <strong>{comparison.mean:.2f}</strong> over {count} kernels."
        f" This bundle is faster in {verdicts[1]}, slower in {verdicts[-1]}, and as fast, to {EVEN:.0%}, in {verdicts[0]};"
        f" the least ratio is {worst.ratio:.2f}, the greatest {best.ratio:.2f}.</p>"
    )
