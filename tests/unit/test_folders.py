"""A folder is replaced whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from tvmconv.support import folders


def put(place: Path, text: str) -> None:
    """Replace the folder at `place` by one that holds `text`."""
    with folders.staging(place) as folder:
        (folder / "text").write_text(text)
        with folders.lock(place.parent):
            folders.move_into_place(folder, place)


def test_a_folder_is_made_and_replaced(tmp_path: Path) -> None:
    place = tmp_path / "place"
    for text in ("first", "second"):
        put(place, text)
        assert (place / "text").read_text() == text
        assert os.listdir(tmp_path) == ["place"]
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE(place.stat().st_mode) == 0o777 & ~mask


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    place = tmp_path / "place"
    put(place, "first")
    with pytest.raises(ZeroDivisionError), folders.staging(place) as folder:
        (folder / "text").write_text("half")
        raise ZeroDivisionError
    assert (place / "text").read_text() == "first" and os.listdir(tmp_path) == ["place"]


def test_a_file_system_that_cannot_exchange_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(one: Path, other: Path) -> None:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(other))

    monkeypatch.setattr(folders, "_exchange", refuse)
    for text in ("first", "second"):
        put(tmp_path / "place", text)
    assert (tmp_path / "place" / "text").read_text() == "second" and os.listdir(tmp_path) == ["place"]


def test_the_exchange_itself_reports_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        folders._exchange(tmp_path / "absent", tmp_path)
