"""`Store`: a folder of networks compiled from programs of `torch.export`, for other processes and machines."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import torch
from torch import fx

from ..errors import BundleError, ToolchainError, UnsupportedMachineError
from ..frontends.torch.memory import octets
from ..runtime.networks.network import Network
from ..support import origin
from ..support.cache import Cache, open_cache
from ..support.files import write_whole
from ..support.folders import lock
from ..version import __version__

INDEX = "networks.json"
_TEMPORARY: list[tempfile.TemporaryDirectory[str]] = []


@dataclass(frozen=True)
class Kept:
    """Record of a program's pieces.

    Attributes
    ----------
    key
        Key of the program.
    target
        Target of its networks.
    foreign
        Reasons why PyTorch computes nodes, by their names.
    files
        The libraries of its pieces, in order.
    head, images
        Number of first operators that form a piece for `images` images at a time; 0: there is none.
    seen
        Key of the model's call that it was read from (`watch`); empty: there is none, or PyTorch computes a part of it.
    chain
        The facts that suffice to compute a call with that key.
    failures
        Why pieces could not be compiled; another attempt may succeed.
    """

    key: str
    target: str
    foreign: Mapping[str, str]
    files: Sequence[str]
    head: int = 0
    images: int = 0
    seen: str = ""
    chain: Mapping[str, Any] = field(default_factory=dict)
    failures: Sequence[str] = ()


class Store:
    """The networks in a folder.

    Parameters
    ----------
    path
        The folder, created on demand.

    Raises
    ------
    BundleError
        If the path is something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not (path / INDEX).is_file() and not (path.is_dir() and not any(path.iterdir())):
            raise BundleError(
                f"{path} is not a folder that tvmconv.torch.optimize wrote: it has no {INDEX}; give an empty one, or another path"
            )
        self._read()  # errors come before time is spent

    @property
    def is_empty(self) -> bool:
        """True if there is nothing in it."""
        return not self._read()

    def find(self, key: str, target: str | None) -> Kept | None:
        """Return a program's entry for a target; for None, that of the best target that this machine runs. `key` may be that of a call."""
        found = [each for each in self._read() if key in (each.key, each.seen) and target in (None, each.target)]
        if target is not None:
            return found[0] if found else None
        usable = [(features, each) for each in found if (features := self._features(each)) is not None]
        return max(usable, key=lambda each: each[0])[1] if usable else None

    def place(self, key: str, target: str, number: int) -> Path:
        """Return the path of a piece's library."""
        self.path.mkdir(parents=True, exist_ok=True)
        return self.path / f"{key[:16]}-{target}-{number}.so"

    def add(self, kept: Kept) -> None:
        """Write a program's entry, in place of the previous one for this target."""
        self.path.mkdir(parents=True, exist_ok=True)
        with lock(self.path):
            others = [each for each in self._read() if (each.key, each.target) != (kept.key, kept.target)]
            content = {"tvmconv": __version__, "programs": [asdict(each) for each in (*others, kept)]}
            write_whole(self.path / INDEX, json.dumps(content, indent=1).encode())

    def recall(self, seen: str) -> None:
        """Copy the entry of a model's call on this machine from the user's cache, if it has one."""
        known = _find_place(seen)
        found = known[0].read_files(known[1]) if known else None
        if found is None:
            return
        kept = Kept(**found[0])
        self.path.mkdir(parents=True, exist_ok=True)
        for file, content in zip(kept.files, found[1], strict=True):
            write_whole(self.path / file, content)
        self.add(kept)

    def remember(self, kept: Kept) -> None:
        """Copy the entry of a model's call on this machine to the user's cache, if it is a small part of its limit."""
        known = _find_place(kept.seen)
        if known is not None:
            known[0].write_files(known[1], asdict(kept), [self.path / file for file in kept.files])

    def _read(self) -> list[Kept]:
        file = self.path / INDEX
        if not file.exists():
            return []
        try:
            content = json.loads(file.read_text())
            made, kept = content["tvmconv"], [Kept(**each) for each in content["programs"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BundleError(f"{file} is damaged: {error}; remove {self.path}, or give another path") from error
        if made != __version__:
            raise BundleError(
                f"{self.path} was made by tvmconv {made} and this is {__version__}; give another path, or remove it first"
            )
        return kept

    def _features(self, kept: Kept) -> int | None:
        """Return the number of CPU features that a program's networks use; None: this machine lacks some."""
        try:
            opened = [Network(self.path / file) for file in kept.files]
        except UnsupportedMachineError:
            return None
        return max((len(each.description["features"]) for each in opened), default=0)


def _find_place(seen: str) -> tuple[Cache, str] | None:
    """Return the user's cache, and a call's key in it; None without a cache or a compiler."""
    known = open_cache()
    if known is None:
        return None
    try:
        return known, hashlib.sha256(repr((seen, torch.get_num_threads(), origin.host())).encode()).hexdigest()
    except (PackageNotFoundError, ToolchainError):
        return None


def key_of(graph: fx.GraphModule, *options: Any) -> str:
    """Return a key of a program and its options: a digest of operators, shapes, types and weights."""
    sha = hashlib.sha256(repr((__version__, *options)).encode())
    parts = [each for each in graph.modules() if isinstance(each, fx.GraphModule)]  # itself, and branches
    for node in (node for part in parts for node in part.graph.nodes):
        sha.update(node.format_node().encode() if node.op != "output" else str(node.args).encode())
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor):
            sha.update(repr((value.shape, value.stride(), value.dtype)).encode())
    for name, tensor in sorted({**dict(graph.named_parameters()), **dict(graph.named_buffers())}.items()):
        sha.update(name.encode())
        sha.update(octets(tensor))
    return sha.hexdigest()


def temporary() -> Path:
    """Return a folder that is removed with the process."""
    _TEMPORARY.append(tempfile.TemporaryDirectory(prefix="tvmconv-"))
    return Path(_TEMPORARY[-1].name)
