"""Files are replaced whole, links followed, pipes and devices written to or refused: by every command and function."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tvmconv import cli
from tvmconv.errors import BundleError, InputError
from tvmconv.runtime.packed import PackedFilter
from tvmconv.support import files, folders, jsonlines


def _disk(path: Path) -> None:
    """Make a node of a block device of number 0, 0, which there is not."""
    try:
        os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(0, 0))
    except PermissionError:
        pytest.skip("this user makes no devices")


def _null(path: Path) -> None:
    """Make another device like the one that takes everything."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.stat(os.devnull).st_rdev)
        path.write_bytes(b"")
    except PermissionError:
        pytest.skip("this user makes no devices, or opens none here")


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def _link(path: Path) -> None:
    """Make a link to a link to a pipe."""
    os.mkfifo(path.with_name("pipe"))
    path.with_name("between").symlink_to("pipe")
    path.symlink_to(path.with_name("between"))


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": _null,
    "disk": _disk,
    "socket": _socket,
    "folder": Path.mkdir,
    "link": _link,
}
STREAMS = ("pipe", "device", "link")


def _read(path: Path) -> tuple[threading.Thread, list[bytes]]:
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()
    return reader, found


@pytest.mark.parametrize("kind", STREAMS)
def test_what_takes_a_stream_is_written_to_and_stays(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    KINDS[kind](place)
    before = os.lstat(place), os.stat(place)
    reader, found = _read(place)
    files.write_whole(place, b"content" * 50_000)
    reader.join()
    assert found == [b"" if kind == "device" else b"content" * 50_000]
    after = os.lstat(place), os.stat(place)
    assert [(each.st_ino, each.st_mode) for each in before] == [(each.st_ino, each.st_mode) for each in after]


@pytest.mark.parametrize("kind", [each for each in KINDS if each not in STREAMS])
def test_anything_else_is_refused_and_stays(kind: str, tmp_path: Path) -> None:
    place = tmp_path / "place"
    KINDS[kind](place)
    before = os.lstat(place)
    with pytest.raises(InputError, match=r"path .*place is a (folder|device|socket); give the name of a file"):
        files.write_whole(place, b"content")
    assert os.lstat(place).st_ino == before.st_ino and os.listdir(tmp_path) == ["place"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["compile", "export-onnxruntime", "report", "run", "build", "export-c", "c"])
def test_commands_refuse_before_anything_is_read(
    command: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "place"
    KINDS[kind](place)
    before = os.lstat(place)
    to_stream = kind in STREAMS and command in ("report", "run")
    source = {"build": "conv2d-n1-i1x1x1-o1x1x1-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"}.get(command, "nowhere.onnx")
    arguments = ["compile", source, "--format", "c"] if command == "c" else [command, source]
    if kind == "folder" and command in ("build", "export-c", "c"):
        (place / "data").touch()
    assert cli.main([*arguments, "--output", str(place)]) in (1, 2)
    error = capsys.readouterr().err
    if to_stream:
        assert "nowhere" in error
    elif command != "export-c":  # which reads its bundle first
        assert str(place) in error and ("; give" in error)
    assert os.lstat(place).st_ino == before.st_ino and error.count("\n") == 1


def test_a_file_keeps_its_mode_and_links_lead_to_the_new_one(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    place, link, other = tmp_path / "inner" / "place", tmp_path / "link", tmp_path / "other"
    place.write_text("old")
    place.chmod(0o640)
    link.symlink_to("inner/place")
    os.link(place, other)  # a second name keeps what it had: the first is replaced
    files.write_whole(link, b"new")
    assert link.is_symlink() and place.read_text() == "new" and stat.S_IMODE(place.stat().st_mode) == 0o640
    assert other.read_text() == "old" and os.listdir(tmp_path / "inner") == ["place"]
    dangling = tmp_path / "dangling"
    dangling.symlink_to("inner/made")
    files.write_whole(dangling, b"new")
    assert dangling.is_symlink() and (tmp_path / "inner" / "made").read_text() == "new"


def test_a_file_that_has_no_name_any_more_is_written_to(tmp_path: Path) -> None:
    with (tmp_path / "gone").open("w+") as file:
        os.unlink(tmp_path / "gone")
        files.write_whole(Path(f"/proc/self/fd/{file.fileno()}"), b"content")
        assert file.read() == "content" and os.listdir(tmp_path) == []


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.write_text("old")
    with pytest.raises(ZeroDivisionError), files.whole_file(place) as part:
        part.write_text("half")
        raise ZeroDivisionError
    assert place.read_text() == "old" and os.listdir(tmp_path) == ["place"]
    (tmp_path / "loop").symlink_to("loop")
    for path in (tmp_path / "no" / "place", place / "below", tmp_path / "loop"):
        with pytest.raises(OSError) as caught:
            files.write_whole(path, b"content")
        assert caught.value.filename == str(path)


def test_functions_that_write_follow_links(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("filter.npz")
    PackedFilter("layout", np.ones(16, np.float32)).save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and PackedFilter.load(tmp_path / "filter.npz").nbytes == 64
    (tmp_path / "lines").symlink_to("lines.jsonl")
    jsonlines.write(tmp_path / "lines", [1, 2], ["{half"])
    assert (tmp_path / "lines.jsonl").read_text() == "1\n2\n{half\n" and (tmp_path / "lines").is_symlink()


def test_a_folder_is_replaced_behind_its_link(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "link").symlink_to("first")
    place = folders.follow_link(tmp_path / "link")
    with folders.staging(place) as folder:
        (folder / "text").write_text("new")
        folders.move_into_place(folder, place)
    assert (tmp_path / "link").is_symlink() and (tmp_path / "first" / "text").read_text() == "new"
    (tmp_path / "nowhere").symlink_to("none")
    assert folders.follow_link(tmp_path / "nowhere") == tmp_path / "nowhere"  # which is refused, as something else


def test_a_folder_of_records_that_is_a_file_is_refused(tmp_path: Path) -> None:
    from tvmconv.tuning.records import records_of

    (tmp_path / "file").touch()
    for written in (False, True):
        with pytest.raises(InputError, match="there is no such folder"):
            records_of(tmp_path / "file", written)
    with pytest.raises(BundleError, match="exists and is not an export"):
        from tvmconv.support.folders import check_replaceable

        check_replaceable(tmp_path / "file", "export.json", "an export")
