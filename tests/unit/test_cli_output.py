"""Texts that commands print: tables, and the growth of weights."""

from __future__ import annotations

import pytest

from tvmconv.cli.output import growth, print_table


def test_a_table_has_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["node", "times"], [["a\n\x1b[31mb ü", "1"], ["c", "12"]])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["node", r"a\n\x1b[31mb ü", "c"]
    assert len({len(line) for line in lines}) == 1


def test_growth_of_weights_names_the_option_without() -> None:
    assert growth(174, 100, "--memory small") == " (1.74 times the model's, for speed; not with --memory small)"
    assert growth(104, 100, "--memory small") == growth(104, 0, "--memory small") == ""
