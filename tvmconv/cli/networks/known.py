"""`KnownLibrary`: the output of an earlier `tvmconv compile` of the same model and options, from the user's cache."""

from __future__ import annotations

import argparse
import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

from ...errors import SourceError, ToolchainError
from ...runtime.processors import kernel_threads, usable_processors
from ...support import origin
from ...support.cache import Cache, open_cache
from ...support.files import whole_file
from ..env import package_version

# Packages that read models, fold their constants, or compute reference answers.
_LIBRARIES = ("numpy", "onnx", "onnxruntime", "openvino", "torch")
# Arguments that do not affect the library; the model is keyed by its content.
_OF_NAMES = ("command", "run", "model", "output", "json", "timing", "no_cache")
# A file's inode, modification time and size, one of which changes with its content.
_Status = tuple[int, int, int]


@dataclass(frozen=True)
class Told:
    """Summary that the command prints for a library whose answers are right.

    Attributes
    ----------
    lines
        Lines on stderr, after the model's name.
    rows
        What became of each convolution.
    """

    lines: list[str]
    rows: list[dict[str, Any]]


class KnownLibrary:
    """The library of a command, keyed by everything that decides its bytes and its summary.

    Parameters
    ----------
    arguments
        Those of ``tvmconv compile``. Commands that tune or write a folder are not cached.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._model = Path(arguments.model)
        self._statuses: dict[Path, _Status] = {}
        self._place: tuple[Cache, str] | None = None
        self._others: dict[str, str] = {}
        self._warned: list[str] = []
        # Anything but a file, such as a pipe, can be read only once.
        if arguments.format == "plan" and not (arguments.trials or arguments.seconds) and self._model.is_file():
            self._place = self._find_place(arguments)

    def write(self, output: Path) -> Told | None:
        """Write the library; return its summary, or None if the cache lacks it."""
        found = self._place[0].read_files(self._place[1]) if self._place else None
        if found is None:
            self._note_others()
            return None
        told, (content,) = found
        if not self._are_same(told.pop("others")):
            self._note_others()
            return None
        with whole_file(output, mapped=True) as named:
            # Executable, as a linker's output.
            library = os.open(named, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o777)
            with open(library, "wb") as file:
                file.write(content)
        return Told(**told)

    @contextmanager
    def watch_warnings(self) -> Iterator[None]:
        """Note warnings, which may be about this machine's state: then nothing is cached."""
        shown = warnings.showwarning

        def show(message: Warning | str, *rest: Any, **more: Any) -> None:
            self._warned.append(str(message))
            shown(message, *rest, **more)

        warnings.showwarning = show
        try:
            yield
        finally:
            warnings.showwarning = shown

    def keep(self, output: Path, told: Told) -> None:
        """Cache the written library, if its source files have not changed meanwhile."""
        if self._place is None or self._warned or any(_status(path) != had for path, had in self._statuses.items()):
            return
        self._place[0].write_files(self._place[1], {**asdict(told), "others": self._others}, [output])

    def _find_place(self, arguments: argparse.Namespace) -> tuple[Cache, str] | None:
        """Return the cache and the key in it; None without a cache or a compiler."""
        known = open_cache()
        if known is None:
            return None
        try:
            facts = {
                "model": (self._model.suffix.lower(), self._digest(self._model)),
                "options": {name: str(each) for name, each in vars(arguments).items() if name not in _OF_NAMES},
                "machine": repr(origin.host(arguments.records)),
                "processors": (usable_processors(), kernel_threads()),
                "libraries": {name: package_version(name) for name in _LIBRARIES},
            }
        except (OSError, PackageNotFoundError, ToolchainError):
            return None
        return known, hashlib.sha256(repr(facts).encode()).hexdigest()

    def _are_same(self, others: Mapping[str, str]) -> bool:
        try:
            return all(self._digest(self._model.parent / name) == digest for name, digest in others.items())
        except OSError:
            return False

    def _note_others(self) -> None:
        """Compute the digests of a model's external weight files, before they are read."""
        if self._place is None:
            return
        try:
            self._others = {name: self._digest(self._model.parent / name) for name in _find_others(self._model)}
        except (OSError, SourceError):  # the reader reports it
            self._place = None

    def _digest(self, path: Path) -> str:
        self._statuses[path] = _status(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


def _find_others(model: Path) -> list[str]:
    """Return the names of a model's external weight files."""
    if model.suffix.lower() == ".xml":
        return [model.with_suffix(".bin").name]
    if model.suffix.lower() == ".pt2":
        return []
    content = model.read_bytes()
    if b"location" not in content:  # key of an external file's name
        return []
    from ...frontends.onnx.load import load
    from ...frontends.onnx.weights import weight_files

    return weight_files(load(content, str(model), inline=False))


def _status(path: Path) -> _Status:
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
