"""Code blocks of a page: fenced ones have a language, indented ones and those that begin a table's row are commands.

``<!-- not run: why -->`` above a block says that a test cannot run it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS, PYTHON, SHOWN = ("sh",), ("py", "python"), ("text",)
FILES = ("c", "cmake", "cpp", "js", "py", "toml")  # where they have a title
ROW = re.compile(r"\| `(tvmconv [^`]+)` \|.*")
# Commands of tables that take minutes, or end when they are stopped.
LONG = ("tvmconv calibrate", "tvmconv rpc-server")
MARK = re.compile(r"<!-- not run: (.+) -->")
FENCE = re.compile(r'( *)```(\w*)(?: title="([^"]+)")?')


@dataclass(frozen=True)
class Block:
    """Lines of a page that are code.

    Attributes
    ----------
    line
        The number of the first.
    title
        The file that they are, empty for none.
    reason
        Why no test runs them, empty if one does.
    """

    line: int
    language: str
    title: str
    text: str
    reason: str


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page in their order.

    Raises
    ------
    ValueError
        A fence has no end, or a mark stands above no block.
    """
    lines = page.read_text().splitlines()
    reason, number = "", 0
    while number < len(lines):
        line = lines[number]
        number += 1
        if mark := MARK.fullmatch(line):
            reason = mark[1]
            continue
        if fence := FENCE.fullmatch(line):
            end = lines.index(f"{fence[1]}```", number)
            first, body, margin = number + 1, lines[number:end], len(fence[1])
            number, language, title = end + 1, fence[2], fence[3] or ""
        elif line.startswith("    "):
            first, body, margin, language, title = number, [line], 4, "sh", ""
            while number < len(lines) and lines[number].startswith("    "):
                body.append(lines[number])
                number += 1
        elif row := ROW.fullmatch(line):
            why = "minutes" if row[1].startswith(LONG) else ""
            yield Block(number, "sh", "", f"{row[1]}\n", why)
            continue
        else:
            if line and reason:
                raise ValueError(f"{page}:{number}: no block follows '{reason}'")
            continue
        yield Block(first, language, title, "".join(f"{each[margin:]}\n" for each in body), reason)
        reason = ""
