"""Export a bundle as a library for C, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..checks import as_path, choice
from ..errors import InputError
from ..runtime.bundle import check_name as check_path
from ..runtime.bundle import read_bundle
from ..support.folders import check_replaceable, follow_link, lock, move_into_place, staging
from ..version import __version__
from . import THREADS
from .archive import ArchiveOptions, build_library, check_header, check_tools
from .cpp_header import cpp_header
from .header import header, with_imports
from .names import check_name, library_name
from .packaging import packaging
from .plan import Function, Plan, packaging_of, plan
from .smoke import answers, program

# File that marks a folder as an export, which another export may replace.
DESCRIPTION = "export.json"


def export_c(
    bundle: str | os.PathLike[str],
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    targets: Sequence[str] | None = None,
    shared: bool = False,
    threads: str = "none",
    flags: Sequence[str] = (),
) -> Path:
    """Write the kernels of a bundle as a library for C into the folder `path`.

    An earlier export that is there is replaced whole, once the new one is complete.

    Parameters
    ----------
    bundle
        The bundle's folder.
    path
        The folder to create, with missing parents.
    name
        The library's name and the prefix of its symbols; None: the bundle's name.
    targets
        Targets of the bundle to include, of one instruction set; None: all CPU targets.
    shared
        Whether to build a shared library, too.
    threads
        The library's own threads, for programs that set no hook: ``"none"``, ``"pthreads"``, ``"openmp"``.
    flags
        More flags for the C compiler.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If `name` is no identifier of C, or the name of a system header; if `threads` is another value; if `path` is no path.
    BundleError
        If there is no bundle, it is damaged, was built before libraries could be exported, or has no CPU kernel; or if `path` holds
        something else.
    TargetError
        If the bundle has no kernel for one of `targets`, or they are of several instruction sets.
    ToolchainError
        If the C compiler or binutils are missing, or fail.
    """
    choice("threads", threads, THREADS, InputError)
    source = read_bundle(bundle)
    path = as_path("path", path)
    name = library_name(Path(os.path.abspath(source.path)).name) if name is None else check_name(name)
    check_folder(path)
    planned = plan(source, name, targets)
    if threads == "openmp" and not packaging_of(planned.isa).has_openmp:
        raise InputError(f"threads is {threads!r}; allowed for {planned.isa.name}: none, pthreads")
    if shared and not packaging_of(planned.isa).shared:
        raise InputError(f"shared libraries are not supported for {planned.isa.name}: leave out --shared (shared=True)")
    check_tools(planned.isa)
    check_header(name, planned.isa)
    with replacing(path) as folder:
        _write(planned, ArchiveOptions(threads, shared, tuple(flags)), folder)
    return path


def check_folder(path: Path) -> None:
    """Refuse a path that libraries cannot be loaded from, or that holds anything but an export, an empty folder, or a link to one."""
    check_path(path)
    check_replaceable(path, DESCRIPTION, "an export")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a new folder that is moved to `path` when the block ends, in the place of an earlier export if there is one."""
    path = follow_link(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with staging(path) as folder:
        yield folder
        with lock(path.parent):
            check_replaceable(path, DESCRIPTION, "an export")
            move_into_place(folder, path)


def _write(planned: Plan, options: ArchiveOptions, folder: Path) -> None:
    text = header(planned, options.threads)
    if packaging_of(planned.isa).imports_data:
        text = with_imports(text, planned.name)
    (folder / f"{planned.name}.h").write_text(text)
    (folder / f"{planned.name}.hpp").write_text(cpp_header(planned))
    work = folder / "work"
    work.mkdir()
    (work / f"{planned.name}.h").write_text(text)
    build_library(planned, options, work, folder)
    shutil.rmtree(work)
    (folder / "smoke.c").write_text(program(planned))
    (folder / "smoke-answers.h").write_text(answers(planned))
    for file, content in packaging(planned, options).items():
        (folder / file).write_text(content)
    (folder / DESCRIPTION).write_text(json.dumps(_describe(planned, options), indent=1) + "\n")


def _describe(planned: Plan, options: ArchiveOptions) -> dict[str, Any]:
    """Return the machine-readable description, `export.json`."""
    return {
        "format": "tvmconv-export",
        "format_version": 1,
        "tvmconv": __version__,
        "name": planned.name,
        "targets": list(planned.targets),
        "threads": options.threads,
        "kernels": [_describe_function(planned, each) for each in planned.functions],
        "families": [_describe_function(planned, each) for each in planned.families],
    }


def _describe_function(planned: Plan, function: Function) -> dict[str, Any]:
    return {
        "signature": function.signature,
        "function": f"{planned.name}_{function.name}",
        "variants": [{"target": each.entry.target, "algorithm": each.entry.algorithm} for each in function.variants],
    }
