"""`tvmconv shell`: what shells complete, and the man page, are of the parser's own commands and options."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tvmconv import cli
from tvmconv.cli.shell import commands

COMPLETE = """
source {script}
COMP_WORDS=({words}) COMP_CWORD={number}
_shtab_tvmconv
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def printed(what: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["shell", what]) == 0
    return capsys.readouterr().out


def test_bash_completes_commands_options_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    script = tmp_path / "tvmconv.bash"
    script.write_text(printed("bash", capsys))
    (tmp_path / "model.onnx").touch()

    def completed(*words: str) -> list[str]:
        text = COMPLETE.format(script=script, words=" ".join(f"'{word}'" for word in words), number=len(words) - 1)
        done = subprocess.run(["bash", "-c", text], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert set(completed("tvmconv", "compi")) == {"compile"}
    assert set(completed("tvmconv", "compile", "--mem")) == {"--memory"}
    assert "model.onnx" in completed("tvmconv", "compile", "mod")


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_know_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    text = printed(shell, capsys)
    assert all(name in text for name in cli.COMMANDS)
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=text, text=True, check=True)


def test_the_man_page_has_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("argparse_manpage")
    text = printed("man", capsys).replace("\\-", "-").replace("\\", "")
    for name, parser in commands(cli.parser()).items():
        for option in parser._option_string_actions:
            assert option in text, (name, option)


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("tvmconv.errors.find_spec", lambda name: None)
    assert cli.main(["shell", "bash"]) == 3
    assert "shtab" in capsys.readouterr().err
