"""`Platform`: the facts about an operating system that libraries are built for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Threaded:
    """Second linking of a network, for hosts that give it threads; the first, for all hosts, has one thread.

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


@dataclass(frozen=True)
class Port:
    """An instruction set's facts on a platform, where they differ from those in the instruction set's folder.

    Attributes
    ----------
    isa
        The name of the instruction set.
    triple
        LLVM's.
    machine
        What ``platform.machine()`` is there.
    default
        The CPU that the platform's name alone stands for.
    lacking
        LLVM's names of features that the platform gives to no program.
    cross_compilers
        C compilers for it on other machines, each with flags that it always needs.
    tools
        What the names of binutils for it begin with.
    install
        What gets them on Debian and Ubuntu.
    zig
        Name by which `zig cc` knows it; empty: that has no C library for it.
    emulators
        Programs that run its code on other machines.
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
    """A thing that was done on a platform.

    Attributes
    ----------
    machine
        The instruction set.
    what
        The thing, in words; what was not done, too.
    command
        Shell command that does it.
    date
        Its day.
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
        Assembly of a network's weights, of some ``{bytes}``.
    shared
        File of a shared library, of a ``{name}``; empty: there are none.
    beside
        Other files that its linker writes for programs.
    link_flags
        Flags that link it, of a ``{name}``.
    staying
        Those that keep it in a process in which its threads wait.
    thread_flags
        Those of a library with threads.
    cmake_finds, cmake_threads, cmake_shared
        The same for CMake: packages to find, libraries to link, and properties of a shared library.
    has_openmp
        Whether there may be OpenMP's threads.
    imports_data
        Whether Microsoft's compiler has to be told which data is a shared library's.
    publish
        Makes those symbols of an object file visible which the function wants: a compiler has hidden them.
    services
        C files of `tvmconv/lowering/native` and of `Platform.native` that they have beside those of all platforms.
    archive
        File of an archive, of a ``{name}``.
    archive_flags
        Flags by which ``ar`` makes it.
    mathematics
        The library of mathematical functions; empty: they are in the C library.
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
    """Return no list of exports: whatever is not hidden is visible."""
    return ""


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
        Those that link a library, which has its visible symbols in `exports_file`.
    exports
        Returns the text of that from the symbols, whose names may end in ``*``, and the object files that may define them.
    kept
        Assembly of a section that is not loaded, with the ``{section}`` of a name, and the content of a ``{file}``; empty: libraries
        keep nothing.
    services
        C files of `tvmconv/lowering/native` and of `native` that every library has: what TVM's code calls, and threads.
    threaded
        Way to link networks with threads, too; None: all libraries have threads.
    zig_suffix
        What follows an instruction set's triple in the name by which `zig cc` knows it.
    native
        Folder of its C files and headers: ``system.h`` has memory, ``host.h`` a lock and the weights of a network, ``threads.h``
        what threads wait by.
    has_parts
        Whether a program links a network as an object, without threads and errors; else it is a library that lacks nothing.
    runner
        Name of the module that runs its code where this machine does not: `tvmconv.runtime.emulation` imports it.
    packaged
        Libraries for C; None: there are none.
    exports_file
        See `link_flags`.
    relocatable_flags
        Those that link objects into one.
    libraries
        Flags for the system's libraries that every library needs.
    supplied
        The system's libraries, each with its functions in assembly, that its linker is given where the system's own are not to be had.
    prefix
        What names of its targets begin with, before a colon and the CPU; its code needs that as if it were a feature of the CPU.
        Empty: the CPU tells.
    ports
        Instruction sets that it has, of folders that name another platform.
    trials
        Things that were done on it, for README's table.
    prepare
        Returns an object file of LLVM's as the linker takes it; None: as it is.
    select
        Returns an object file with other names, of which others see those of some patterns alone; None: ``objcopy`` does that.
    imports
        Returns the list of the imports of object files from tvm-ffi, for ``dlltool``; None: a library needs none.
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
        """Names that its code needs as if they were features of a CPU."""
        return (self.prefix,) if self.prefix else ()

    def service(self, name: str, folder: Path) -> Path:
        """Return the C file of a service: its own, else that of a folder."""
        own = self.native / f"{name}.c"
        return own if own.exists() else folder / f"{name}.c"

    def __repr__(self) -> str:
        return f"<Platform {self.name}>"
