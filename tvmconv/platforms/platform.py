"""`Platform`: facts about an operating system, for building libraries."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Threaded:
    """Second link of a network, for hosts with threads; the first, for all hosts, has one thread.

    Attributes
    ----------
    services
        C files that replace the platform's.
    compile_flags, link_flags
        Additional flags for these files, and for the library.
    """

    services: tuple[str, ...]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]


@dataclass(frozen=True)
class Port:
    """An instruction set on a platform: the facts that differ from those in the instruction set's folder.

    Attributes
    ----------
    isa
        The name of the instruction set.
    triple
        LLVM's target triple.
    machine
        The value of ``platform.machine()``.
    default
        The CPU of a target that is only the platform's name.
    lacking
        Features, by LLVM's names, that programs on the platform cannot use.
    cross_compilers
        Cross compilers for C, each with the flags that it always needs.
    tools
        Prefix of the names of its binutils.
    install
        Command that installs them on Debian and Ubuntu.
    zig
        Its target name for `zig cc`; empty: zig has no C library for it.
    emulators
        Emulators that run its code on other machines.
    detect
        Module whose ``features`` returns Linux's names of a machine's features; empty: that of the instruction set's folder.
    """

    isa: str
    triple: str
    machine: str
    default: str
    lacking: Collection[str] = ()
    cross_compilers: tuple[str, ...] = ()
    tools: str = ""
    install: str = ""
    zig: str = ""
    emulators: tuple[str, ...] = ()
    detect: str = ""


@dataclass(frozen=True)
class SystemTrial:
    """A trial of libraries on a platform, for README's table.

    Attributes
    ----------
    machine
        The instruction set.
    what
        Description of what was and what was not done.
    command
        Shell command that repeats it.
    date
        Day of the trial.
    """

    machine: str
    what: str
    command: str
    date: str


@dataclass(frozen=True)
class Packaged:
    """Libraries for programs in C.

    Attributes
    ----------
    c_flags
        The C compiler's flags for their C files.
    weights
        Assembly that defines a network's weights, with ``{bytes}`` to fill in.
    shared
        File name of a shared library, with ``{name}``; empty: not supported.
    beside
        Other files that the linker writes, for linking programs.
    link_flags
        Linker flags of a shared library, with ``{name}``.
    staying
        Linker flags that prevent its unloading, since its threads wait in its code.
    thread_flags
        Linker flags of a library with threads.
    cmake_finds, cmake_threads, cmake_shared
        For CMake: find_package commands, libraries to link, and properties of a shared library.
    has_openmp
        Whether OpenMP's threads are supported.
    imports_data
        Whether headers declare a shared library's data as dllimport for Microsoft's compiler.
    publish
        Makes those hidden symbols of an object file visible for which the function returns True.
    services
        C files of `tvmconv/lowering/native` and `Platform.native`, in addition to those of all platforms.
    archive
        File name of an archive, with ``{name}``.
    archive_flags
        Flags of ``ar`` for it.
    mathematics
        Name of the math library; empty: it is part of the C library.
    """

    c_flags: tuple[str, ...]
    weights: str
    shared: str
    beside: tuple[str, ...]
    link_flags: tuple[str, ...]
    staying: tuple[str, ...]
    thread_flags: tuple[str, ...]
    cmake_finds: str
    cmake_threads: str
    cmake_shared: str
    has_openmp: bool
    imports_data: bool
    publish: Callable[[Path, Callable[[str], bool]], None]
    services: tuple[str, ...] = ()
    archive: str = "lib{name}.a"
    archive_flags: tuple[str, ...] = ("rcsD",)
    mathematics: str = "m"


def _list_nothing(names: Sequence[str], objects: Sequence[Path]) -> str:
    """Return an empty list of exports: all symbols that are not hidden are visible."""
    return ""


@dataclass(frozen=True, eq=False)
class Platform:
    """An operating system that libraries are compiled for: `PLATFORM` of its folder.

    Attributes
    ----------
    name
        Its name in messages.
    library_suffix
        Suffix of a library's file name.
    compile_flags
        The C compiler's flags for the C files of libraries.
    link_flags
        The C compiler's flags for linking a library; its visible symbols are listed in `exports_file`.
    exports
        Returns the text of `exports_file` from symbols, whose names may end in ``*``, and the object files that may define them.
    kept
        Assembly of a section that is not loaded, with the name ``{section}`` and the content of ``{file}``; empty: libraries have no
        such section.
    services
        C files of `tvmconv/lowering/native` and `native` in every library: functions that TVM's code calls, and threads.
    threaded
        Second link of networks, with threads; None: all libraries have threads.
    zig_suffix
        Suffix of an instruction set's triple in its target name for `zig cc`.
    native
        Folder of its C files and headers: ``system.h`` has memory, ``host.h`` a lock and the weights of a network, ``threads.h``
        threads and their synchronization.
    has_parts
        Whether a network is exported as an object without threads and errors, to be linked; else it is a complete library.
    runner
        Name of the module with its emulator, which `tvmconv.runtime.emulation` imports.
    packaged
        Libraries for C; None: not supported.
    exports_file
        Name of the file with the visible symbols.
    relocatable_flags
        Flags for linking objects into one object.
    libraries
        Linker flags for the system libraries that every library needs.
    supplied
        Stub libraries as assembly, by file name, for the linker where the system's own are not available.
    prefix
        Prefix of its targets' names, before a colon and the CPU; its code requires it like a CPU feature. Empty: the targets
        are CPUs without prefix.
    ports
        Its instruction sets whose own folder names another platform.
    trials
        Trials on it, for README's table.
    prepare
        Returns LLVM's object file as the linker accepts it; None: unchanged.
    select
        Returns an object file with renamed symbols, of which only those that match patterns are global; None: ``objcopy`` does it.
    imports
        Returns the list of object files' imports from tvm-ffi, for ``dlltool``; None: libraries need none.
    """

    name: str
    library_suffix: str
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    kept: str
    services: tuple[str, ...]
    threaded: Threaded | None
    zig_suffix: str
    native: Path
    has_parts: bool
    runner: str
    packaged: Packaged | None = None
    exports: Callable[[Sequence[str], Sequence[Path]], str] = _list_nothing
    exports_file: str = "exports.map"
    relocatable_flags: tuple[str, ...] = ("-r", "-nostdlib")
    libraries: tuple[str, ...] = ()
    supplied: Mapping[str, str] = field(default_factory=dict)
    prefix: str = ""
    ports: tuple[Port, ...] = ()
    trials: tuple[SystemTrial, ...] = ()
    prepare: Callable[[bytes], bytes] | None = None
    select: Callable[[bytes, Mapping[str, str], Sequence[str]], bytes] | None = None
    imports: Callable[[Sequence[Path]], str] | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """Names that its code requires like CPU features."""
        return (self.prefix,) if self.prefix else ()

    def service(self, name: str, folder: Path) -> Path:
        """Return the C file of a service: the platform's own, else that in `folder`."""
        own = self.native / f"{name}.c"
        return own if own.exists() else folder / f"{name}.c"

    def __repr__(self) -> str:
        return f"<Platform {self.name}>"
