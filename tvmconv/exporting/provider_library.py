"""Export a bundle as an execution provider for onnxruntime: one shared library, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..checks import as_path
from ..errors import BundleError, InputError
from ..runtime.bundle import read_bundle
from ..runtime.network_file import append
from ..support.toolchain import ffi_includes, run_compiler
from ..version import __version__
from .archive import FLAGS, Options, build_library, check_tools, named, write_sources
from .filters import Blobs
from .header import header
from .network_part import PARALLEL, RAISED, NetworkPart
from .plan import plan
from .provider_sources import LEVEL_FLAGS, defines, is_served, tables_source

PROVIDER = Path(__file__).parent / "provider"
# What the archive in it is called: its symbols are hidden, so that any number of providers fit into a process.
_NAME = "provider"
_EXPORTS = (
    "{ global: CreateEpFactories; ReleaseEpFactory; tvmconv_provider_graphs; tvmconv_provider_refusal; local: *; };\n"
)
# Compiled once for each level of vectors, of which the header of the instruction set takes one.
_BETWEEN, _LEVELS = "ops.c", "levels.h"


def export_provider(
    bundle: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    targets: Sequence[str] | None = None,
    decisions: Mapping[int, str] | None = None,
    data_formats: Collection[str] | None = None,
    network: NetworkPart | None = None,
    graph: int | None = None,
) -> Path:
    """Write the kernels of a bundle as an execution provider for onnxruntime.

    Parameters
    ----------
    bundle
        The bundle's folder.
    path
        The library to write, which replaces a file that is there.
    targets
        Those of the bundle's to take, of one instruction set; None: all that are CPUs.
    decisions
        What was measured to be the fastest to claim of graphs, by their hashes: ``"nothing"``, ``"convolutions"`` or ``"groups"``. Of
        others, groups are claimed, if there are kernels for data whose channels lie last.
    data_formats
        Kernels for these alone are taken; None: for all that a provider calls.
    network
        What a model is computed by as a whole; None: by parts.
    graph
        The identity of the graph that `network` computes, as the provider told it (`tvmconv.onnxruntime.racing`); None: it is taken
        for any that has its inputs and outputs, which is for who measures it, and knows.

    Returns
    -------
    Path
        The library.

    Raises
    ------
    InputError
        If `path` is no path of a file.
    BundleError
        If there is no bundle, it is damaged, or has no kernel in ONNX's layouts for CPUs.
    TargetError
        If the bundle has nothing for one of `targets`, or they are of several instruction sets.
    ToolchainError
        If the C compiler or binutils are missing, or fail.
    """
    path = as_path("path", path).absolute()
    if path.is_dir():
        raise InputError(f"path is {path}, a folder; give the file of the library to write, such as provider.so")
    source = read_bundle(bundle)
    planned = plan(source, _NAME, targets, layers=False)
    check_tools(planned.isa)
    served = [each for each in planned.functions if is_served(each.problem)]
    taken = (each for each in served if data_formats is None or each.problem.data_format in data_formats)
    planned = replace(planned, functions=tuple(taken))
    if not planned.functions:
        raise BundleError(
            f"{source.path} has no kernel for filters in ONNX's layout, OIX: build it of an ONNX model, without --filter-format"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}-") as folder:
        work = Path(folder)
        (work / f"{_NAME}.h").write_text(header(planned, False, "none"))
        build_library(planned, Blobs(planned, False), Options(), work, work)
        (work / "tables.c").write_text(named(planned, tables_source(planned, decisions or {}, network, graph)))
        write_sources(planned, (*PROVIDER.iterdir(), *RAISED, PARALLEL), work)
        (work / _LEVELS).write_text((planned.isa.native / _LEVELS).read_text())
        (work / "provider.map").write_text(_EXPORTS)
        files = ["tables.c", "raised.c", *sorted(each.name for each in PROVIDER.glob("*.c") if each.name != _BETWEEN)]
        for level, machine in planned.isa.levels.items():
            chosen = (*LEVEL_FLAGS, *machine, f"-DLEVEL={level}")
            run_compiler((*FLAGS, *planned.isa.c_flags, *chosen, "-c", _BETWEEN, "-o", f"{level}.o"), work, planned.isa)
            files.append(f"{level}.o")
        if network is not None:
            (work / "network.o").write_bytes(network.object)
            files.append("network.o")
        flags = (
            *ffi_includes(),
            "-D_GNU_SOURCE",
            *defines(planned, __version__),
            "-shared",
            "-Wl,-Bsymbolic",
            "-Wl,--build-id=none",
        )
        link = ("-Wl,-z,defs", "-Wl,-s", "-Wl,--version-script=provider.map", "-o", "provider.so")
        run_compiler((*FLAGS, *planned.isa.c_flags, *flags, *files, f"lib{_NAME}.a", "-lm", *link), work, planned.isa)
        if network is not None:
            append(work / "provider.so", network.weights, dict(network.description), network.identity)
        os.replace(work / "provider.so", path)
    return path
