"""README, CONTRIBUTING and docs: links lead somewhere, commands are accepted, quoted code stands in its file."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest

from tvmconv import cli

pytestmark = pytest.mark.smoke
ROOT = Path(__file__).parents[2]
README, CONTRIBUTING, INDEX = ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/README.md"
COMMANDS = ROOT / "docs/commands.md"
PAGES = (README, CONTRIBUTING, *sorted((ROOT / "docs").rglob("*.md")))
TEXTS = {path: path.read_text() for path in PAGES}
EVERYTHING = "\n".join(TEXTS.values())
# The front page is read in a minute, and the guide for contributors is two printed pages.
LONGEST = {README: 100, CONTRIBUTING: 100}
# Where the repository is published. A package index shows the README beside no other file, so its links are absolute.
URL = re.search(r'^Repository = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]  # type: ignore[index]
PUBLISHED = re.compile(rf"{re.escape(URL)}/(?:blob|raw)/main/")
# What stands in the tree that backquoted paths are of.
FOLDERS = ("tvmconv", "schedules", "tests", "benchmarks", "docs", "examples", ".ci")


def prose(text: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$|^    [^\n]*$", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page, none of which occur twice."""
    titles = [title.lower() for title in re.findall(r"^#+ (.+)$", prose(page.read_text()), re.MULTILINE)]
    found = [re.sub(r"[^\w -]", "", title).replace(" ", "-") for title in titles]
    assert len(set(found)) == len(found), page
    return set(found)


def links(page: Path) -> list[tuple[Path, str]]:
    """Return the files that a page links to, and the anchors in them (empty: none)."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(TEXTS[page]))
    found = []
    for target in targets:
        file, _, anchor = PUBLISHED.sub(f"{ROOT}/", target).partition("#")
        if not re.match("https?:", file):
            found.append(((page.parent / file).resolve() if file else page, anchor))
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    broken = [
        f"{file}#{anchor}"
        for file, anchor in links(page)
        if not file.exists() or (anchor and anchor not in anchors(file))
    ]
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_in_backquotes_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]+)`", prose(TEXTS[page]))
    assert [path for path in named if "NAME" not in path and "KIND" not in path and not (ROOT / path).exists()] == []


def test_the_index_has_every_page() -> None:
    assert {file for file, _ in links(INDEX)} >= set(PAGES) - {INDEX}


@pytest.mark.parametrize("page", LONGEST, ids=lambda page: str(page.name))
def test_front_pages_are_short(page: Path) -> None:
    assert len(TEXTS[page].splitlines()) <= LONGEST[page]


def test_the_systems_of_the_readme_are_the_platforms() -> None:
    made = runpy.run_path(str(ROOT / "docs/systems.py"))["table"]()
    assert TEXTS[README].count(made) == 1, "put in what .venv/bin/python docs/systems.py prints"


def test_recipes_fit_a_screen() -> None:
    recipes = [part for part in re.split(r"^## ", TEXTS[CONTRIBUTING], flags=re.MULTILINE) if part.startswith("Add ")]
    assert len(recipes) == 3
    assert [part for part in recipes if sum(max(1, -(-len(line) // 120)) for line in part.splitlines()) > 40] == []


def test_links_of_the_readme_are_absolute() -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(TEXTS[README]))
    assert targets and [target for target in targets if not PUBLISHED.match(target)] == []


@pytest.mark.parametrize(
    "line", dict.fromkeys(re.findall(r"^(?:    |\| `)(tvmconv [^`\n]*)", EVERYTHING, re.MULTILINE))
)
def test_commands_are_accepted(line: str) -> None:
    arguments = cli.parser().parse_args(shlex.split(line.partition(" | ")[0], comments=True)[1:])
    assert arguments.command in cli.COMMANDS


def test_every_command_and_exit_code_is_named() -> None:
    assert all(re.search(rf"`tvmconv {command}[ `]", TEXTS[COMMANDS]) for command in cli.COMMANDS)
    documented = re.findall(r"^  (\d+) +(.+)$", cli.EXIT_CODES, re.MULTILINE)
    assert (
        len(documented) == 6
        and [line for line in documented if f"| {line[0]} | {line[1]} |" not in TEXTS[COMMANDS]] == []
    )


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:`|^    )make (\w+)", EVERYTHING, re.MULTILINE))))
def test_the_make_targets_that_are_named_exist(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize(
    ("margin", "path", "code"),
    re.findall(r"^( *)```py\n *# (\S+/\S+\.py)\n(.*?)^ *```$", EVERYTHING, re.MULTILINE | re.DOTALL),
)
def test_code_that_is_quoted_stands_in_its_file(margin: str, path: str, code: str) -> None:
    # A list that a block is in indents it by its margin.
    assert re.sub(f"^{margin}", "", code, flags=re.MULTILINE) in (ROOT / path).read_text()


def test_code_is_quoted() -> None:
    assert "```py\n# tvmconv/algorithms/cpu/" in EVERYTHING
