"""Without a home, or with one that cannot be read, what a user has measured is left out, with a warning; nothing ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from toys import small_problem

from tvmconv.errors import TvmconvWarning
from tvmconv.support import user
from tvmconv.targets import cost_rows
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Records

TARGET = "x86-64-v3"


def _ask() -> None:
    """Ask for all that a build takes of the user."""
    cost_rows.user_rows()
    records = Records(None)
    records.best(small_problem(), Target.parse(TARGET))
    records.winners(Target.parse(TARGET))
    records.elsewhere(small_problem(), Target.parse(TARGET))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("tvm")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("kind", ["absent", "file", "dangling", "empty"])
@pytest.mark.filterwarnings("error")
def test_homes_in_which_nothing_is(kind: str, home: Path) -> None:
    if kind == "file":
        home.touch()
    elif kind == "dangling":
        home.symlink_to("nowhere")
    elif kind == "empty":
        home.mkdir()
    _ask()


@pytest.mark.filterwarnings("error")
def test_a_user_without_a_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise RuntimeError

    monkeypatch.setattr(user.Path, "home", none)
    _ask()


def test_files_that_cannot_be_read_are_named(home: Path) -> None:
    """A folder in the place of a file is not read by root either, to whom permissions are nothing."""
    folder = user.user_folder()
    (folder / "costs.json").mkdir(parents=True)
    (folder / TARGET / "records.jsonl").mkdir(parents=True)
    with pytest.warns(TvmconvWarning) as warned:
        _ask()
    said = "".join(str(each.message) for each in warned)
    assert "costs.json: Is a directory" in said and "records.jsonl: Is a directory" in said


def test_folders_that_cannot_be_read_are_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Too long a name is refused to root, too."""
    monkeypatch.setenv("HOME", "/" + "x" * 5000)
    with pytest.warns(TvmconvWarning, match="records are not used: .*: File name too long"):
        _ask()
