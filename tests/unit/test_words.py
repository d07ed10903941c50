"""Words: docstrings and comments begin with a verb or a noun."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# First words that put a question, or point at something instead of naming it.
NEVER = re.compile(r"(how|its?|that|th[eo]se|this|what|when|where|whether|which|who(m|se)?|why)\b", re.IGNORECASE)
CLEAN = [
    "schedules",
    "tvmconv/algorithms",
    "tvmconv/exporting",
    "tvmconv/fleet",
    "tvmconv/isa",
    "tvmconv/linear",
    "tvmconv/lowering",
    "tvmconv/measuring",
    "tvmconv/reporting",
    "tvmconv/support",
    "tvmconv/targets",
    "tvmconv/tuning",
    *(f"tvmconv/{path.name}" for path in (ROOT / "tvmconv").glob("*.py")),
]


def sources(*places: str) -> Iterator[Path]:
    """Yield the Python files of packages and modules; `tvmconv/schedules` is a link to one of them."""
    for place in places:
        path = ROOT / place
        files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
        yield from (file for file in files if not file.is_relative_to(ROOT / "tvmconv/schedules"))


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each docstring of a file, and each comment block of its module, with its line."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            docstring := ast.get_docstring(node)
        ):
            yield node.body[0].lineno, docstring
    last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and token.start[1] == 0:
            if token.start[0] != last + 1:
                yield token.start[0], token.string.lstrip("#: ")
            last = token.start[0]


def test_first_word_is_a_verb_or_a_noun() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in sources(*CLEAN)
        for line, text in texts(path)
        if NEVER.match(text)
    ]
    assert not wrong, "Begin with a verb in the imperative, or with a noun:\n" + "\n".join(wrong)
