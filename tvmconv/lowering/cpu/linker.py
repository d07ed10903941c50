"""Link the objects of `tvm.compile` into a self-contained shared library.

The library contains the kernel and `lowering/native/launcher.c`, and needs only tvm-ffi, OpenMP and
libc. Links are reproducible: the same kernel gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from ...errors import TvmconvError
from ...isa import Isa, native
from ...platforms.linux import PLATFORM as LINUX
from ...platforms.platform import Platform
from ...runtime.kernel_object import SECTION, KernelObject, Workspace
from ...support.cache import open_cache
from ...support.files import whole_file
from ...support.origin import compiler
from ...support.timing import stage
from ...support.toolchain import (
    ffi_includes,
    prepare_object,
    run_compiler,
    run_tool,
    select_symbols,
    supply_libraries,
)
from ...targets.target import CpuTarget

# Exported symbols; others are hidden, among them the launcher's four slots, which TVM's runtime, if loaded, would fill in every
# library that exports them.
_EXPORTS = ("__tvm_ffi_*",)
NATIVE = Path(__file__).parents[1] / "native"
# Flags of a family's driver: libraries for C must not need symbols that only glibc has.
_DRIVER_FLAGS = ("-U_FORTIFY_SOURCE", "-fno-stack-protector")
# Flag for C files of operators that need no bf16, which compile in a third of the time.
WHOLE_ALONE = ("-DWHOLE_ALONE",)
_COMPILING: dict[str, Lock] = {}  # by name of the C file of operators


def link(
    executable: Any,
    path: str | os.PathLike[str],
    workspaces: Mapping[str, Workspace] | None = None,
    isa: Isa | None = None,
) -> bytes:
    """Write the shared library of a compiled module, and return its object from LLVM.

    Parameters
    ----------
    executable
        What ``tvm.compile(module, target)`` returns for a CPU target.
    path
        Path of the library; an existing file is replaced atomically.
    workspaces
        Allocations of the kernel's functions. If given, the library keeps the kernel's object for programs in C
        (`tvmconv.runtime.kernel_object`).
    isa
        The module's instruction set; None: this machine's.
    """
    with whole_file(Path(path), mapped=True) as library:
        work = library.parent
        write_object(executable, work / "kernel.o", isa)
        objects = ["kernel.o"]
        if workspaces is not None:
            _keep_object(work, workspaces, isa)
            objects.append("kept.s")
        _link_kernels(work, objects, library, isa)
        return (work / "kernel.o").read_bytes()


def link_together(objects: Iterable[str], path: str | os.PathLike[str], isa: Isa | None) -> None:
    """Write the shared library of kernels in several object files, like :func:`link` for a module.

    `isa` is their instruction set; None: this machine's.
    """
    with whole_file(Path(path), mapped=True) as library:
        _link_kernels(library.parent, objects, library, isa)


def link_family(
    executable: Any,
    path: str | os.PathLike[str],
    table: str,
    workspaces: Mapping[str, Workspace],
    isa: Isa | None = None,
) -> None:
    """Write a family's shared library from the compiled module of its blocks' kernels, like :func:`link` for one kernel.

    `table` is the text of the C file that describes the family to `native/family.c`.
    """
    with whole_file(Path(path), mapped=True) as library:
        work = library.parent
        write_object(executable, work / "kernel.o", isa)
        (work / "table.o").write_bytes(compile_text(table, isa=isa))
        (work / "family.o").write_bytes(compile_runtime("family.c", *_DRIVER_FLAGS, isa=isa))
        objects = ("kernel.o", "table.o", "family.o")
        _keep_object(work, workspaces, isa, objects)
        _link_kernels(work, (*objects, "kept.s"), library, isa)


def _link_kernels(work: Path, objects: Iterable[str], path: Path, isa: Isa | None = None) -> None:
    link_objects(work, (*objects, *runtime_objects(work, isa)), path, isa=isa)


def link_objects(
    work: Path,
    arguments: tuple[str, ...],
    path: Path,
    exports: tuple[str, ...] = _EXPORTS,
    isa: Isa | None = None,
) -> None:
    """Link the linker's `arguments` in the folder `work` into the library `path`, replaced atomically.

    `isa` is the instruction set of the objects; None: this machine's.
    """
    platform = _platform(isa)
    objects = [work / each for each in arguments if each.endswith(".o")]
    (work / platform.exports_file).write_text(platform.exports(exports, objects))
    if platform.imports is not None:
        (work / "imports.def").write_text(platform.imports(objects))
        run_tool("dlltool", ("-d", "imports.def", "-l", "imports.a"), work, isa)
        arguments = (*arguments, "imports.a")
    if platform.supplied and isa is not None:
        arguments = (*arguments, *supply_libraries(work, isa))
    # Names relative to the folder: its own name must not reach the linker.
    linked = f"linked{platform.library_suffix}"
    run_compiler((*platform.link_flags, *arguments, *platform.libraries, "-o", linked), work, isa)
    os.replace(work / linked, path)


def link_relocatable(work: Path, objects: Iterable[str], visible: Iterable[str], isa: Isa | None) -> bytes:
    """Return objects in the folder `work` linked into one; only symbols in `visible` stay visible."""
    run_compiler((*_platform(isa).relocatable_flags, *objects, "-o", "all.o"), work, isa)
    if isa is not None:
        prepare_object(work / "all.o", isa)
    select_symbols("all.o", "one.o", visible, work, isa, stripped="--strip-unneeded")
    return (work / "one.o").read_bytes()


def write_object(executable: Any, path: Path, isa: Isa | None) -> None:
    """Write a compiled module's object file for its platform's linker."""
    with stage("LLVM"):
        executable.mod.write_to_file(str(path))
    if isa is not None:
        prepare_object(path, isa)


def _keep_object(
    work: Path, workspaces: Mapping[str, Workspace], isa: Isa | None, objects: tuple[str, ...] = ("kernel.o",)
) -> None:
    """Write `kept.s`, which adds the kernel's objects, linked into one, to a library as a section that is not loaded."""
    if not _platform(isa).kept:
        (work / "kept.s").write_text("")
        return
    run_compiler(("-r", "-nostdlib", "-Wl,--strip-debug", *objects, "-o", "stripped.o"), work, isa)
    kept = KernelObject((work / "stripped.o").read_bytes(), workspaces)
    (work / "kept.bin").write_bytes(kept.packed())
    (work / "kept.s").write_text(_platform(isa).kept.format(section=SECTION, file="kept.bin"))


def operator_object(work: Path, name: str, target: CpuTarget, fixed: bool = False, flags: Sequence[str] = ()) -> str:
    """Write the object of :func:`compile_operators` into the folder `work`; return the file's name."""
    (work / f"{name}.o").write_bytes(compile_operators(name, target, fixed, flags))
    return f"{name}.o"


def compile_operators(name: str, target: CpuTarget, fixed: bool = False, flags: Sequence[str] = ()) -> bytes:
    """Return the object file of a C file of a network's operators, for a CPU.

    If `fixed`, the compiler contracts no multiply-adds, whose choice would depend on the CPU; it gets `flags`, too.
    """
    flags = (*target.isa.flags(target.features), *["-ffp-contract=off"] * fixed, *flags)
    with _COMPILING.setdefault(name, Lock()):  # a thread may be compiling it ahead of linking
        return _operator_object(name, flags, target.isa)


@cache
def _operator_object(name: str, flags: tuple[str, ...], isa: Isa) -> bytes:
    """Return the object file of operators. No external function takes their vectors of 64 bytes, whose ABI GCC warns of."""
    return compile_runtime(f"operators/{name}.c", "-Wno-psabi", *flags, isa=isa)


def runtime_objects(
    work: Path, isa: Isa | None = None, services: Iterable[str] | None = None, flags: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Write the run-time services of a library as object files into the folder `work`; return their names.

    `isa` is the instruction set; None: this machine's. `services` are C files of `tvmconv/lowering/native`; None: the platform's.
    `flags` are for the C compiler.
    """
    own, platform = isa or native(), _platform(isa)
    files = [platform.service(name, NATIVE) for name in services or platform.services]
    files += sorted(own.native.glob("*.c") if own else ())
    for file in files:
        (work / f"{file.stem}.o").write_bytes(_service_object(file, isa, flags))
    return tuple(f"{file.stem}.o" for file in files)


@cache
def _service_object(file: Path, isa: Isa | None, flags: tuple[str, ...]) -> bytes:
    return compile_runtime(file, *flags, isa=isa)


def compile_runtime(name: str | Path, *flags: str, isa: Isa | None = None) -> bytes:
    """Compile a C file of `tvmconv/lowering/native`, or at another path; it may include headers of that folder, of the platform, of the
    instruction set, and of tvm-ffi.

    `isa` is the instruction set; None: this machine's. The user's cache keeps objects.
    """
    text, known = (NATIVE / name).read_text(), open_cache()
    if known is None:
        return compile_text(text, *flags, name=(NATIVE / name).name, isa=isa)
    key = _key_of(text, flags, isa)
    content = known.read(key)
    if content is None:
        content = compile_text(text, *flags, name=(NATIVE / name).name, isa=isa)
        known.write(key, content)
    return content


def _key_of(text: str, flags: tuple[str, ...], isa: Isa | None) -> str:
    """Return the cache key of a C file's object: a digest of the file, the headers it may include, and the compiler."""
    own, platform = isa or native(), _platform(isa)
    folders = (
        NATIVE,
        LINUX.native,  # which other platforms' headers include
        platform.native,
        *([own.native] if own else []),
        *(Path(each[2:]) for each in flags if each.startswith("-I")),
    )
    headers = [path.read_text() for folder in folders for path in sorted(folder.rglob("*.h"))]
    facts = (
        text,
        flags,
        platform.compile_flags,
        compiler(isa),
        version("apache-tvm-ffi"),
        headers,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def prepare_runtime(isa: Isa) -> Thread:
    """Compile the run-time services of libraries in a thread."""

    def prepare() -> None:
        with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
            runtime_objects(Path(folder), isa)

    return compile_beside(prepare)


def compile_beside(work: Callable[[], object]) -> Thread:
    """Compile in a thread, while this process reads a model or waits for kernels."""

    def run() -> None:
        with suppress(TvmconvError, OSError):  # the thread that links it raises the error
            work()

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


def compile_text(text: str, *flags: str, name: str = "table.c", isa: Isa | None = None) -> bytes:
    """Compile the text of a C file like :func:`compile_runtime`, but without the cache."""
    own, platform = isa or native(), _platform(isa)
    folders = (NATIVE, platform.native, *([own.native] if own else []))
    include = (*ffi_includes(), *(f"-I{folder}" for folder in folders))
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        work = Path(folder)
        (work / name).write_text(text)
        run_compiler((*platform.compile_flags, *flags, *include, "-c", name, "-o", "object.o"), work, isa)
        return (work / "object.o").read_bytes()


def _platform(isa: Isa | None) -> Platform:
    """Return an instruction set's platform; None: this machine's."""
    own = isa or native()
    return own.platform if own else LINUX
