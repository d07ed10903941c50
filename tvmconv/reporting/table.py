"""Tables that a reader sorts by clicking a header (page.js): numbers as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Column:
    """A column: its header, the header's meaning in words, and whether it holds numbers."""

    header: str
    hint: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class Cell:
    """A cell: its HTML, and its sort key; None comes last in either order."""

    html: str
    value: float | str | None


ABSENT = Cell("–", None)  # noqa: RUF001


def number(value: float | None, scale: float = 1.0, digits: int = 1, hint: str = "") -> Cell:
    """Return the cell of a number."""
    if value is None:
        return ABSENT
    return Cell(_add_hint(f"{value * scale:.{digits}f}", hint), value)


def words(text: str, hint: str = "", style: str = "") -> Cell:
    """Return the cell of a text."""
    return Cell(_add_hint(text, hint, style), text)


def draw_table(name: str, columns: Sequence[Column], lines: Iterable[tuple[str, Sequence[Cell]]]) -> str:
    """Return a table; each line is a row's id and its cells."""
    heads = "".join(
        f'<th scope="col"{_class(column)}><button type="button" title="{escape(column.hint or column.header)}">'
        f"{escape(column.header)}</button></th>"
        for column in columns
    )
    body = "".join(
        f'<tr id="{anchor}">' + "".join(_cell(*each) for each in zip(columns, cells, strict=True)) + "</tr>\n"
        for anchor, cells in lines
    )
    return (
        f'<div class="scroll"><table class="sortable" id="{name}"><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>"
    )


def _cell(column: Column, cell: Cell) -> str:
    value = "" if cell.value is None else str(cell.value)
    label = escape(column.header)
    return f'<td{_class(column)} data-label="{label}" data-value="{escape(value)}">{cell.html}</td>'


def _class(column: Column) -> str:
    return ' class="number"' if column.numeric else ""


def _add_hint(text: str, hint: str, style: str = "") -> str:
    attributes = (f' class="{style}"' if style else "") + (f' title="{escape(hint)}"' if hint else "")
    return f"<span{attributes}>{escape(text)}</span>" if attributes else escape(text)
