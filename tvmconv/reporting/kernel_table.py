"""The table by kernel: facts of the manifest, measurements, and skipped algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..measuring.peak import Peak
from ..runtime.bundle import EMULATED, Entry
from .kernels import Line, roof, seconds
from .table import ABSENT, Cell, Column, draw_table, number, words

COLUMNS = (
    Column("signature", "the problem", numeric=False),
    Column("target", "what it was compiled for", numeric=False),
    Column("algorithm", "how it computes", numeric=False),
    Column("schedule", "tuned for this problem, transferred from one like it, or the default", numeric=False),
    Column("us", "microseconds of a call, the median"),
    Column("packed us", "the same with the filter prepacked; absent where it is read in place"),
    Column("GFLOP/s", "operations of the formula a second, with the filter prepacked where it can be"),
    Column("% of roof", "of what the machine's multiply-adds, or its cache, allow"),
    Column("error", "what the check against the reference found; relative L2 unless exact"),
    Column("verified", "whether it gave the reference's answers on a machine that runs it", numeric=False),
    Column("skipped", "algorithms that would have been taken before it", numeric=False),
    Column("workspace KiB", "memory that a call needs besides its arrays"),
    Column("library KiB", "the size of its file"),
)
# Words for an entry's `verified`, and their style.
_VERIFIED = {True: ("yes", ""), EMULATED: ("emulated", ""), False: ("wrong", "bad"), None: ("never", "odd")}


def draw_kernels(lines: Sequence[Line], limits: Peak | None, anchors: Mapping[tuple[str, str], str]) -> str:
    """Return the table; `anchors` are the row ids by signature and target."""
    return draw_table(
        "kernels",
        COLUMNS,
        ((anchors[line.entry.signature, line.entry.target], _cells(line, limits)) for line in lines),
    )


def signature_cell(signature: str) -> Cell:
    """Return the cell of a signature, which may wrap after its dashes and is copied in one piece."""
    return Cell(f"<code>{escape(signature).replace('-', '-<wbr>')}</code>", signature)


def _cells(line: Line, limits: Peak | None) -> list[Cell]:
    entry = line.entry
    return [
        signature_cell(entry.signature),
        words(entry.target),
        words(entry.algorithm, f"{entry.numerical_class}, version {entry.definition_version} of its definition"),
        words(entry.origin, _origin(entry)),
        *_times(line, limits),
        _error(entry),
        words(_VERIFIED[entry.verified][0], style=_VERIFIED[entry.verified][1]),
        _skips_cell(entry),
        number(entry.workspace_bytes, 1 / 1024),
        number(line.library_bytes, 1 / 1024),
    ]


def _times(line: Line, limits: Peak | None) -> list[Cell]:
    row = line.row
    if row is None:
        return [Cell(f'<span class="odd" title="{escape(line.untimed)}">not timed</span>', None), *(ABSENT,) * 3]
    plain = f"at least {row.timing.least * 1e6:.1f} us; {row.timing.samples} samples"
    packed, limit, rate = row.packed, roof(row, limits), row.flops / seconds(row)
    return [
        number(row.timing.median, 1e6, hint=plain),
        number(packed.median, 1e6, hint=f"at least {packed.least * 1e6:.1f} us; {packed.samples} samples")
        if packed
        else ABSENT,
        number(rate, 1e-9),
        number(rate / limit, 100) if limit else ABSENT,
    ]


def _origin(entry: Entry) -> str:
    found = [f"from {entry.transferred_from}"] if entry.transferred_from else []
    if entry.measured:
        measured = entry.measured
        found.append(f"{measured['seconds'] * 1e6:.1f} us after {measured['trials']} trials on {measured['machine']}")
    return "; ".join(found)


def _error(entry: Entry) -> Cell:
    if entry.error is None:
        return ABSENT
    measure, value = entry.error["measure"], entry.error["value"]
    if measure == "exact" and value == 0:
        return Cell("exact", 0.0)
    return Cell(f'<span title="{escape(measure)}">{value:.2g}</span>', value)


def _skips_cell(entry: Entry) -> Cell:
    if not entry.skipped:
        return ABSENT
    names = ", ".join(each["algorithm"] for each in entry.skipped)
    reasons = "<br>".join(escape(f"{each['algorithm']}: {each['reason']}") for each in entry.skipped)
    return Cell(f"<details><summary>{escape(names)}</summary>{reasons}</details>", names)
