"""Export kernels and networks as an execution provider for onnxruntime: one shared library, written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from threading import Thread

from ..checks import as_path
from ..errors import BundleError, TargetError
from ..isa import Isa
from ..lowering.cpu.linker import compile_beside
from ..platforms.linux import PLATFORM as LINUX
from ..platforms.linux.elf import move_segments
from ..runtime.bundle import read_bundle
from ..runtime.networks.file import KIND, NO_IDENTITY, append
from ..runtime.networks.file import PROVIDER as KIND_OF_PROVIDER
from ..runtime.processors import allowed_processors
from ..support.files import check_file, whole_file
from ..support.toolchain import ffi_includes, run_compiler, run_tool
from ..version import __version__
from .archive import ArchiveOptions, build_library, c_flags, check_tools, fill_name, write_sources
from .header import header
from .network_part import LACKING, SHARED, NetworkPart
from .plan import Plan, empty_plan, plan, with_targets
from .provider_sources import defines, is_served, network_symbols, tables_source

PROVIDER = Path(__file__).parent / "provider"
# Name of the archive in a provider. Its symbols are hidden: a process may load any number of providers.
_NAME = "provider"
_EXPORTS = (
    "{ global: CreateEpFactories; ReleaseEpFactory; tvmconv_provider_graphs; tvmconv_provider_refusal; local: *; };\n"
)
# The last plan and its archive: an export links it first for the race, then for the result.
_linked: list[tuple[Plan, bytes]] = []
# Sources that are compiled for each provider anew.
_OWN = ("tables.c", "provider.c")


def export_provider(
    bundle: str | os.PathLike[str] | None,
    path: str | os.PathLike[str],
    *,
    targets: Sequence[str] | None = None,
    decisions: Mapping[int, str] | None = None,
    networks: Mapping[int, Sequence[NetworkPart]] | None = None,
) -> Path:
    """Write the kernels of a bundle, and networks, as an execution provider for onnxruntime.

    Parameters
    ----------
    bundle
        The bundle's folder; None: no kernels. A library without kernels and networks computes nothing; it identifies graphs
        (`tvmconv.onnxruntime.racing.graph_of`).
    path
        The library to write; an existing file is replaced.
    targets
        Targets of the bundle to include, of one instruction set; None: all CPU targets.
    decisions
        By the hash of a graph, what was measured to be the fastest to claim of it: ``"nothing"`` or ``"convolutions"``, the
        default for other graphs.
    networks
        Networks that compute whole graphs or parts, by the identity of their graph: one for each target.

    Returns
    -------
    Path
        The library.

    Raises
    ------
    InputError
        If `path` is no path for a file.
    BundleError
        If there is no bundle, it is damaged, or has no kernel in ONNX's layouts for CPUs.
    TargetError
        If the bundle has no kernel for one of `targets`, or they are of several instruction sets, or not for Linux.
    ToolchainError
        If the C compiler or binutils are missing, or fail.
    """
    path = as_path("path", path)
    check_file(path, mapped=True)
    by_graph = {graph: sorted(parts, key=_fitness) for graph, parts in (networks or {}).items()}
    planned = with_targets(
        _plan(bundle, targets),
        {
            each.description["target"]: tuple(each.description["features"])
            for parts in by_graph.values()
            for each in parts
        },
    )
    if planned.isa.platform is not LINUX:
        raise TargetError(
            f"providers for onnxruntime are for Linux, and {', '.join(planned.targets)} is for {planned.isa.name}"
        )
    check_tools(planned.isa)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path, mapped=True) as library:
        work = library.parent
        (work / "tables.c").write_text(fill_name(planned, tables_source(planned, decisions or {}, by_graph)))
        parts = [each for found in by_graph.values() for each in found]
        _link(planned, work, [_network_object(planned, each, number, work) for number, each in enumerate(parts)])
        for each in parts:
            append(work / "provider.so", each.weights, dict(each.description), each.identity)
        append(work / "provider.so", (), {KIND: KIND_OF_PROVIDER}, NO_IDENTITY)
        os.replace(work / "provider.so", library)
    return path


def _fitness(part: NetworkPart) -> int:
    """Return the sort key of networks for one graph: those that use the most CPU features come first."""
    return -len(part.description["features"])


def _plan(bundle: str | os.PathLike[str] | None, targets: Sequence[str] | None) -> Plan:
    if bundle is None:
        return empty_plan(_NAME)
    source = read_bundle(bundle)
    planned = plan(source, _NAME, targets)
    served = [each for each in planned.functions if is_served(each.problem)]
    if not served:
        raise BundleError(
            f"{source.path} has no kernel in ONNX's layouts, NCX and OIX: build it of an ONNX model, without --data-format and --filter-format"
        )
    return replace(planned, functions=tuple(served), families=())


def _network_object(plan: Plan, part: NetworkPart, number: int, work: Path) -> str:
    """Write a network's object, with unique names of its functions, into the folder `work`; return its file name."""
    name = f"network{number}.o"
    (work / name).write_bytes(part.object)
    renamed = (f"--redefine-sym={old}={new}" for old, new in network_symbols(number).items())
    run_tool("objcopy", (*renamed, name), work, plan.isa)
    return name


def _link(plan: Plan, work: Path, objects: Sequence[str]) -> None:
    """Link ``provider.so`` in the folder `work`, which has ``tables.c``, from the kernels' archive and `objects`."""
    _write_sources(plan, work)
    _write_archive(plan, work)
    (work / "provider.map").write_text(_EXPORTS)
    for name, content in _compile(plan.isa).items():
        (work / name).write_bytes(content)
    flags = (*_flags(plan.isa), *defines(plan, __version__), "-shared", "-Wl,-Bsymbolic", "-Wl,--build-id=none")
    link = ("-Wl,-z,defs", "-Wl,-s", "-Wl,--version-script=provider.map", "-o", "provider.so")
    files = (*_OWN, *_compile(plan.isa), *objects, f"lib{_NAME}.a")
    run_compiler((*flags, *files, "-lm", *link), work, plan.isa)
    move_segments(work / "provider.so")


def _write_archive(plan: Plan, work: Path) -> None:
    """Write the archive of a plan's kernels into the folder `work`."""
    archive = work / f"lib{_NAME}.a"
    if _linked and _linked[0][0] == plan:
        archive.write_bytes(_linked[0][1])
        return
    build_library(plan, ArchiveOptions(), work, work)
    _linked[:] = [(plan, archive.read_bytes())]


def _write_sources(plan: Plan, work: Path) -> None:
    (work / f"{_NAME}.h").write_text(header(plan, "none"))
    write_sources(plan, (*PROVIDER.iterdir(), *SHARED), work)


def _flags(isa: Isa) -> tuple[str, ...]:
    return (*c_flags(isa), *ffi_includes(), "-D_GNU_SOURCE")


def prepare_provider(isa: Isa) -> Thread:
    """Compile the objects common to all providers for an instruction set, in a thread."""
    return compile_beside(lambda: _compile(isa))


@cache
def _compile(isa: Isa) -> Mapping[str, bytes]:
    """Return the objects common to all providers for an instruction set, by name: an export links several providers."""
    plan = replace(empty_plan(_NAME), isa=isa)
    with tempfile.TemporaryDirectory(prefix="tvmconv-") as folder:
        work = Path(folder)
        _write_sources(plan, work)
        sources = [*LACKING, *sorted({each.name for each in PROVIDER.glob("*.c")} - set(_OWN))]
        objects = {f"{Path(each).stem}.o": each for each in sources}
        with ThreadPoolExecutor(len(allowed_processors())) as pool:
            commands = ((*_flags(isa), source, "-c", "-o", name) for name, source in objects.items())
            list(pool.map(lambda command: run_compiler(command, work, isa), commands))
        return {name: (work / name).read_bytes() for name in objects}
