"""Compile and link an exported library: an archive whose members link alone, and a shared library."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..isa import Isa
from ..runtime.processors import allowed_processors
from ..support.toolchain import (
    find_compiler,
    find_tool,
    has_selection,
    prepare_object,
    run_compiler,
    run_tool,
    select_symbols,
    supply_libraries,
)
from .families import family_source
from .network_part import PARALLEL
from .plan import Function, FunctionVariant, Plan, packaging_of
from .sources import kernel_source, object_symbols, table_source, targets_header

NATIVE = Path(__file__).parent / "native"
# Functions of the run time, by the names under which kernels' objects call them.
_CALLED = {"TVMFFIErrorSetRaisedFromCStrParts": "NAME_rt_raise", "tvmconv_allow_tiles": "NAME_rt_allow_tiles"}
_SLOT = "__TVMBackend"


@dataclass(frozen=True)
class ArchiveOptions:
    """Options of a library's build.

    Attributes
    ----------
    threads
        The archive's own threads: ``"none"``, ``"pthreads"`` or ``"openmp"``.
    shared
        Whether to build a shared library, too.
    flags
        More flags for the C compiler.
    """

    threads: str = "none"
    shared: bool = False
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Member:
    """A member of the archive: its name, the function that writes its object, and patterns of its global symbols."""

    name: str
    make: Callable[[Path, str], None]
    visible: tuple[str, ...] = ()


def check_header(name: str, isa: Isa) -> None:
    """Check that a library's header hides no system header: a program's -I folders are searched first.

    Raises
    ------
    InputError
        If the system has a header of that name.
    """
    command = (*find_compiler(isa), "-E", "-x", "c", "-")
    if (
        subprocess.run(command, input=f"#include <{name}.h>\n", text=True, capture_output=True, check=False).returncode
        == 0
    ):
        raise InputError(f"name is {name!r}, but {name}.h is a header of the system's; give another with --name")


def check_tools(isa: Isa) -> None:
    """Check that the tools for an export to an instruction set are installed.

    Raises
    ------
    TargetError
        If its platform has no libraries for C.
    ToolchainError
        If the C compiler or a tool of binutils is missing.
    """
    packaging_of(isa)
    find_compiler(isa)
    if not has_selection(isa):
        find_tool("objcopy", isa)
    find_tool("ar", isa)


def build_library(plan: Plan, options: ArchiveOptions, work: Path, folder: Path) -> None:
    """Write the archive, and the shared library on request, into `folder`.

    Parameters
    ----------
    work
        A folder for sources and objects, with ``NAME.h``.
    """
    write_sources(plan, (each for each in NATIVE.iterdir() if not each.name.startswith("smoke")), work)
    write_sources(plan, service_files(plan.isa, ["processors"]), work)
    (work / "tvmconv-targets.h").write_text(fill_name(plan, targets_header(plan)))
    members = _members(plan, options)
    with ThreadPoolExecutor(len(allowed_processors())) as pool:
        list(pool.map(lambda member: _make(plan, member, work), members))
    objects = [f"{member.name}.o" for member in members]
    write_archive(plan.name, objects, work, folder, plan.isa)
    if options.shared:
        _link_shared(plan, options, objects, work, folder)


def write_archive(name: str, objects: Sequence[str], work: Path, folder: Path, isa: Isa) -> None:
    """Write objects in the folder `work` as an archive into `folder`."""
    how = packaging_of(isa)
    run_tool("ar", (*how.archive_flags, str(folder / how.archive.format(name=name)), *objects), work, isa)


def service_files(isa: Isa, names: Iterable[str]) -> list[Path]:
    """Return the C files of a platform's libraries: CPU detection, the services `names`, and the platform's own services."""
    services = [isa.platform.service(each, PARALLEL.parent) for each in (*names, *packaging_of(isa).services)]
    return [isa.platform.service(isa.c_file, NATIVE), *services]


def write_sources(plan: Plan, sources: Iterable[Path], work: Path) -> None:
    """Write the C files among `sources` into a folder, with ``tvmconv_name`` replaced by the library's name."""
    for source in sources:
        if source.suffix in (".c", ".h"):
            (work / source.name).write_text(source.read_text().replace("tvmconv_name", plan.name))


def _members(plan: Plan, options: ArchiveOptions) -> list[_Member]:
    def c_file(name: str, *flags: str) -> _Member:
        return _Member(name, lambda work, output: _compile(plan, f"{name}.c", output, work, (*options.flags, *flags)))

    def text(name: str, source: str) -> _Member:
        def make(work: Path, output: str) -> None:
            (work / f"{name}.c").write_text(fill_name(plan, source))
            _compile(plan, f"{name}.c", output, work, options.flags)

        return _Member(name, make)

    def kernel(function: Function) -> _Member:
        visible = [f"{plan.name}_rt_{kind}_{function.name}" for kind in ("kernel", "entry")]
        source = kernel_source(function) if function.family is None else family_source(function)
        return _Member(
            f"kernel_{function.name}",
            lambda work, output: _link_kernel(plan, source, function.variants, output, work, options.flags),
            (*visible, f"{plan.name}_{function.name}*"),
        )

    openmp = ("-fopenmp",) if options.threads == "openmp" else ()
    # Renamed, because a program may link several archives.
    own = [f"-Dtvmconv_{each}={plan.name}_rt_{each}" for each in ("default_threads", "cores", "quota")]
    return [
        c_file("runtime"),
        c_file(plan.isa.c_file),
        c_file(f"pool_{options.threads}", *openmp),
        *([c_file("processors", *own)] if options.threads == "pthreads" else []),
        *map(c_file, packaging_of(plan.isa).services),
        text("tables-kernels", table_source(plan)),
        *map(kernel, plan.functions),
        *map(kernel, plan.families),
        *([c_file("families")] if plan.families else []),
    ]


def _make(plan: Plan, member: _Member, work: Path) -> None:
    """Write a member's object; with patterns of global symbols, all others become local."""
    output = f"{member.name}.o"
    if not member.visible:
        member.make(work, output)
        return
    member.make(work, f"{member.name}.all.o")
    select_symbols(f"{member.name}.all.o", output, member.visible, work, plan.isa, stripped="--strip-unneeded")


def _compile(plan: Plan, source: str, output: str, work: Path, flags: Sequence[str]) -> None:
    run_compiler((*c_flags(plan.isa), *flags, "-c", source, "-o", output), work, plan.isa)


def c_flags(isa: Isa) -> tuple[str, ...]:
    """Return the C compiler's flags for the C files of a library."""
    folders = (f"-I{isa.platform.native}", f"-I{isa.native}", f"-I{PARALLEL.parent}")
    return (*packaging_of(isa).c_flags, *isa.c_flags, "-DTVMCONV_ARCHIVE", *folders)


def _link_kernel(
    plan: Plan, source: str, variants: Sequence[FunctionVariant], output: str, work: Path, flags: Sequence[str]
) -> None:
    """Link the objects of a kernel's variants and its C file into one object.

    Each variant's helper functions (conversions of f16) are compiled for its target, so they become local to it.
    """
    stem = output.removesuffix(".o")
    (work / f"{stem}.c").write_text(fill_name(plan, source))
    _compile(plan, f"{stem}.c", f"{stem}.c.o", work, flags)
    parts = [f"{stem}.c.o"]
    for number, variant in enumerate(variants):
        part = f"{stem}.{number}.o"
        (work / f"{stem}.{number}.in.o").write_bytes(variant.object.content)
        entry_points = object_symbols(number)
        renamed = {**entry_points, **{name: fill_name(plan, ours) for name, ours in _CALLED.items()}}
        keep = (*entry_points, *entry_points.values(), f"{_SLOT}*")
        select_symbols(f"{stem}.{number}.in.o", part, keep, work, plan.isa, renamed)
        parts.append(part)
    run_compiler((*plan.isa.platform.relocatable_flags, *parts, "-o", output), work, plan.isa)
    prepare_object(work / output, plan.isa)


def _link_shared(plan: Plan, options: ArchiveOptions, objects: Sequence[str], work: Path, folder: Path) -> None:
    """Link the shared library of an archive's objects; only the header's declarations are visible."""
    how = packaging_of(plan.isa)
    # Workers of the pool wait in the library's code, so it must not be unloaded.
    pool = {"none": (), "pthreads": (*how.thread_flags, *how.staying), "openmp": ("-fopenmp", *how.staying)}
    own = f"{plan.name}_rt_"
    link_shared(
        plan.name,
        objects,
        lambda symbol: symbol.startswith(f"{plan.name}_") and own not in symbol,
        (*pool[options.threads], *options.flags),
        work,
        folder,
        plan.isa,
    )


def link_shared(
    name: str,
    objects: Sequence[str],
    public: Callable[[str], bool],
    flags: Sequence[str],
    work: Path,
    folder: Path,
    isa: Isa,
) -> None:
    """Link objects in the folder `work` into a shared library in `folder`, with the platform's files for linkers.

    `public` returns whether a symbol is visible; `flags` are further flags of the compiler.
    """
    how = packaging_of(isa)
    for each in objects:
        how.publish(work / each, public)
    exports = isa.platform.exports((f"{name}_*",), [work / each for each in objects])
    (work / isa.platform.exports_file).write_text(exports)
    made = [each.format(name=name) for each in (how.shared, *how.beside)]
    link = (each.format(name=name) for each in how.link_flags)
    run_compiler((*link, *objects, *flags, *supply_libraries(work, isa), "-o", made[0]), work, isa)
    for each in made:
        shutil.copyfile(work / each, folder / each)


def fill_name(plan: Plan, text: str) -> str:
    """Return a C text with NAME replaced by the library's name."""
    return re.sub(r"\bNAME_", f"{plan.name}_", text)
