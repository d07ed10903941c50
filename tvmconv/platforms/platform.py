"""`Platform`: what the rest of the code asks of a system that libraries are for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Threaded:
    """Link a network a second time, for hosts that give it threads, where a library for all hosts has one thread.

    Attributes
    ----------
    services
        C files in the place of the platform's.
    compile_flags, link_flags
        Flags for these files, and for the library, beside the platform's.
    """

    services: tuple[str, ...]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Platform:
    """A system that libraries are compiled for. There is one object of each, `PLATFORM` of its folder.

    Attributes
    ----------
    name
        What messages call it.
    library_suffix
        Ending of a library's file.
    compile_flags
        The C compiler's flags for the C files of libraries.
    link_flags
        Those that link a library, which has its visible symbols in ``exports.map``.
    exports
        Returns the text of that from the symbols, whose names may end in ``*``.
    kept
        Assembly of a section that is not loaded, with the ``{section}`` of a name, and the content of a ``{file}``.
    services
        C files of `tvmconv/lowering/native` and of `native` that every library has: what TVM's code calls, and threads.
    threaded
        Way to link networks with threads, too; None: all libraries have threads.
    zig_suffix
        What follows an instruction set's triple in the name by which `zig cc` knows it.
    native
        Folder of its C files and headers: ``system.h`` has memory, ``host.h`` a lock and the weights of a network.
    has_parts
        Whether a program links a network as an object, without threads and errors; else it is a library that lacks nothing.
    runner
        Name of the module that runs its code where this machine does not: `tvmconv.runtime.emulation` imports it.
    """

    name: str
    library_suffix: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    exports: Callable[[Sequence[str]], str]
    kept: str
    services: tuple[str, ...]
    threaded: Threaded | None
    zig_suffix: str
    native: Path
    has_parts: bool
    runner: str

    def service(self, name: str, folder: Path) -> Path:
        """Return the C file of a service: its own, else that of a folder."""
        own = self.native / f"{name}.c"
        return own if own.exists() else folder / f"{name}.c"

    def __repr__(self) -> str:
        return f"<Platform {self.name}>"
