"""Files kept from process to process: safe, whole, bounded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tvmconv import cli
from tvmconv.errors import TvmconvWarning
from tvmconv.lowering.cpu import linker
from tvmconv.support import origin
from tvmconv.support.cache import MOST_BYTES, VARIABLE, Cache, open_cache, place

KEY, OTHER = "ab" * 32, "cd" * 32


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cache:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "cache"))
    found = open_cache()
    assert found is not None
    return found


def test_what_is_written_is_read(known: Cache) -> None:
    assert known.read(KEY) is None
    known.write(KEY, b"content")
    known.write(OTHER, b"")
    assert known.read(KEY) == b"content" and known.read(OTHER) == b""
    assert {each.key for each in known.files()} == {KEY, OTHER}
    assert os.stat(known.folder).st_mode & 0o777 == 0o700
    assert known.clear() == 2 and known.files() == []


@pytest.mark.parametrize("damage", [lambda content: content[:-1], lambda content: content + b"x", lambda content: b""])
def test_damage_is_told_and_made_good(known: Cache, damage) -> None:  # type: ignore[no-untyped-def]
    known.write(KEY, b"content")
    path = known.folder / KEY[:2] / KEY[2:]
    path.write_bytes(damage(path.read_bytes()))
    with pytest.warns(TvmconvWarning, match="is damaged"):
        assert known.read(KEY) is None
    known.write(KEY, b"content")
    assert known.read(KEY) == b"content"


def test_the_oldest_go(known: Cache) -> None:
    for number in range(5):
        key = f"{number:02}" * 32
        known.write(key, bytes(100))
        os.utime(known.folder / key[:2] / key[2:], (number, number))
    known.read("00" * 32)  # used again
    known.trim(3 * 132)
    assert {each.key[:2] for each in known.files()} == {"00", "03", "04"}


def test_files_are_kept_with_what_is_said_of_them(known: Cache, tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    for content, file in zip((b"\n1", b""), files, strict=True):
        file.write_bytes(content)
    assert known.read_files(KEY) is None
    known.write_files(KEY, {"said": ["a\nb"]}, files)
    wanted: Any = ({"said": ["a\nb"]}, [b"\n1", b""])
    assert known.read_files(KEY) == wanted
    os.truncate(files[0], MOST_BYTES // 4 + 1)
    known.write_files(OTHER, {}, files)  # too large
    assert [each.key for each in known.files()] == [KEY]


_WRITER = """
import sys
from pathlib import Path
from tvmconv.support.cache import open_cache
known, file = open_cache(), Path(sys.argv[1])
print(flush=True)
while True:
    known.write_files("ab" * 32, {"bytes": file.stat().st_size}, [file, file])
"""


def test_writers_that_are_killed_leave_whole_files(known: Cache, tmp_path: Path) -> None:
    """Two at once, twenty of them killed while they write; a reader meanwhile has what one of them wrote, or nothing."""
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    wanted: Any = ({"bytes": 1 << 20}, [file.read_bytes()] * 2)
    for number in range(10):
        writers = [
            subprocess.Popen([sys.executable, "-c", _WRITER, str(file)], stdout=subprocess.PIPE) for _ in range(2)
        ]
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline()
            writer.stdout.close()
        for _ in range(number + 1):
            assert known.read_files(KEY) in (None, wanted)
        for writer in writers:
            writer.kill()
            writer.wait()
        assert known.read_files(KEY) in (None, wanted)
    known.write_files(KEY, wanted[0], [file, file])
    assert known.read_files(KEY) == wanted and len(known.files()) == 1
    for left in known.folder.glob("??/.part-*"):
        os.utime(left, (0, 0))
    known.trim()
    assert not list(known.folder.glob("??/.part-*")) and known.read_files(KEY) == wanted


def test_folders_that_are_not_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv(VARIABLE, str(folder))
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(TvmconvWarning, match="may be written to by others"):
        assert open_cache() is None
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    if folder.stat().st_uid:
        with pytest.warns(TvmconvWarning, match="belongs to another user"):
            assert open_cache() is None
    monkeypatch.undo()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file"))
    (tmp_path / "file").touch()
    with pytest.warns(TvmconvWarning, match="cannot be made"):
        assert open_cache() is None


def test_what_cannot_be_written_is_read(known: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    known.write(KEY, b"content")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tvmconv.support.cache.whole_file", refuse)
    monkeypatch.setattr(os, "utime", refuse)
    known.write(OTHER, b"content")
    assert known.read(KEY) == b"content" and known.read(OTHER) is None


def test_objects_of_c_files_depend_on_all_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    shutil.copytree(linker.NATIVE, tmp_path / "native")
    monkeypatch.setattr(linker, "NATIVE", tmp_path / "native")
    before = linker._key_of("int x;", (), None)
    header = tmp_path / "native/operators/attention_block.h"
    header.write_text(f"{header.read_text()}\n")
    assert linker._key_of("int x;", (), None) != before


def test_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "")
    assert place() is None and open_cache() is None
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert place() == tmp_path / "tvmconv"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert place() == Path.home() / ".cache/tvmconv"


def test_the_command(known: Cache, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known.write(KEY, b"content")
    assert cli.main(["cache", "--path"]) == 0
    assert capsys.readouterr().out == f"{known.folder}\n"
    assert cli.main(["cache", "--json"]) == 0
    assert [each["key"] for each in json.loads(capsys.readouterr().out)] == [KEY]
    assert cli.main(["cache", "--list"]) == 0
    assert KEY[:16] in capsys.readouterr().out
    assert cli.main(["cache", "--clear"]) == 0 and known.files() == []
    monkeypatch.setenv(VARIABLE, "")
    assert cli.main(["cache"]) == 2
    assert "the cache is disabled" in capsys.readouterr().err


def test_measurements_decide_what_is_made_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    before = origin.host()
    (tmp_path / "tvmconv").mkdir()
    (tmp_path / "tvmconv/costs.json").write_text("{}")
    assert origin.host() != before
    monkeypatch.setenv("XDG_DATA_HOME", f"/{'x' * 300}")  # which no system has
    assert origin.host() == before
