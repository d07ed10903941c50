"""Every code block of the pages runs, or says why it cannot: the README's in .ci/run, the other pages' in .ci/full."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.snippets.blocks import COMMANDS, FILES, PAGES, PYTHON, ROOT, SHOWN, read_blocks
from tests.snippets.run import Run, lacking_packages

# Why a block is marked; its machine has too little, or too little time.
REASONS = {"GPU", "Microsoft", "hours", "machines", "minutes"}
# make test runs it; .ci/run the README, too.
QUICK = ("semantics",)
WITH_CODE = [page for page in PAGES if any(True for _ in read_blocks(page))]


@pytest.mark.parametrize(
    "page",
    [pytest.param(page, marks=() if page.stem in QUICK else pytest.mark.slow) for page in WITH_CODE],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_a_page_runs(page: Path, tmp_path: Path) -> None:
    if lacks := lacking_packages(page):
        pytest.skip(f"there is no {', '.join(lacks)}")
    run = Run(page, tmp_path)
    run.run()
    print(*run.left, sep="\n")


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_are_of_known_kinds(page: Path) -> None:
    for block in read_blocks(page):
        known = FILES if block.title else (*COMMANDS, *PYTHON, *SHOWN)
        assert block.language in known and block.reason in {"", *REASONS}, f"{page}:{block.line}"
        if block.language in PYTHON:
            ast.parse(block.text)


def test_a_mark_is_above_a_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- not run: hours -->\n\n    make\n\n- a list:\n\n  ```py\n  x = 1\n  ```\n")
    command, code = read_blocks(page)
    assert (command.text, command.reason, command.language) == ("make\n", "hours", "sh")
    assert (code.line, code.text, code.reason) == (8, "x = 1\n", "")
    page.write_text("<!-- not run: hours -->\n\nA sentence.\n")
    with pytest.raises(ValueError, match="no block follows 'hours'"):
        list(read_blocks(page))


def test_a_block_that_fails_or_shows_something_else_is_found(tmp_path: Path) -> None:
    page = tmp_path / "tutorials/page.md"
    page.parent.mkdir()
    for number, (text, wrong) in enumerate(
        (
            ('```py title="a.py"\nprint(2)\n```\n\n```sh\npython a.py\n```\n\n```text\n2\n```\n', ""),
            ("```sh\necho 3\n```\n\n```text\n2\n```\n", "shows"),
            ("```py\nraise SystemExit(1)\n```\n", "SystemExit"),
            ("    false\n", "false"),
        )
    ):
        page.write_text(text)
        folder = tmp_path / str(number)
        folder.mkdir()
        if wrong:
            with pytest.raises(AssertionError, match=wrong):
                Run(page, folder).run()
        else:
            Run(page, folder).run()


def test_every_tutorial_shows_what_its_commands_print() -> None:
    tutorials = [page for page in PAGES if page.parent.name == "tutorials"]
    assert len(tutorials) == 5
    for page in tutorials:
        languages = [block.language for block in read_blocks(page) if not block.title]
        assert set(languages) == {"sh", "text"} and languages[-1] == "text"
