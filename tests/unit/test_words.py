"""Words: docstrings and comments begin with a verb or a noun; functions are verbs, and a class's name is its own."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# First words that put a question, point at something instead of naming it, or hang in the air.
NEVER = re.compile(
    r"(how|its?|that|th[eo]se|this|what|when|where|whether|which|who(m|se)?|why|always|and|as|at|beyond|between|by|for"
    r"|from|in|into|never|nor|of|on|or|to|until|up|with|within|without)\b(?![<\[])",
    re.IGNORECASE,
)
PARTICIPLE = re.compile(r"_*([a-z]+ed|[a-z]+en|built|cut|found|held|kept|laid|lent|made|said|seen|sent|told)")
VERBS = {"_open", "flatten", "unsigned", "widen", "_widen"}


def sources(*endings: str) -> Iterator[Path]:
    """Yield the files of the packages, one of which has a link to the other."""
    for package in ("schedules", "tvmconv"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in endings and not path.is_relative_to(ROOT / "tvmconv" / "schedules"):
                yield path


@cache
def trees() -> dict[Path, ast.Module]:
    """Return the files of Python, parsed; not before a test asks, since each process that runs tests imports this file."""
    return {path: ast.parse(path.read_text()) for path in sources(".py")}


def python_texts(path: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each docstring of a file, and each comment block of its module, with its line."""
    lines = path.read_text().splitlines()
    within: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (docstring := ast.get_docstring(node)):
            yield node.body[0].lineno, docstring
        elif isinstance(node, ast.Constant | ast.JoinedStr):
            within.update(range(node.lineno + 1, (node.end_lineno or 0) + 1))
    for number, (before, line) in enumerate(zip(["", *lines], lines, strict=False), 1):
        if line.startswith("#") and not before.startswith("#") and number not in within:
            yield number, line.lstrip("#: ")


def c_texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each comment block of a file outside of its functions, with its line."""
    before = ""
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if (begin := re.match(r"/\*\*?\s*|//\s*", line)) and not before.startswith("//"):
            yield number, line[begin.end() :]
        before = line


def test_first_word_is_a_verb_or_a_noun() -> None:
    texts = [(path, *each) for path, tree in trees().items() for each in python_texts(path, tree)]
    texts += [(path, *each) for path in sources(".c", ".h", ".cuh") for each in c_texts(path)]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}" for path, line, text in texts if NEVER.match(text)
    ]
    assert not wrong, "Begin with a verb in the imperative, or with a noun:\n" + "\n".join(wrong)


def test_functions_are_no_participles() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path, tree in trees().items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and PARTICIPLE.fullmatch(node.name) and node.name not in VERBS
    ]
    assert not wrong, "Name the function by a verb:\n" + "\n".join(wrong)


def test_one_class_has_a_name() -> None:
    places = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    twice = [f"{name}: {', '.join(found)}" for name, found in places.items() if len(found) > 1]
    assert not twice, "Name each class by what it is:\n" + "\n".join(twice)
