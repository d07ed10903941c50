"""Export a compiled network as a library for C, written whole or not at all."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..accuracy import NETWORK_ERROR
from ..checks import as_path
from ..isa import Isa
from ..runtime.networks.extents import FreeExtents
from ..runtime.networks.tensors import tensors_of
from ..support.toolchain import ffi_includes, prepare_object, run_compiler, select_symbols
from ..version import __version__
from . import network_header
from .archive import NATIVE as RUNTIME
from .archive import c_flags, check_header, check_tools, link_shared, service_files, write_archive
from .cpp_header import network_cpp_header
from .exporter import DESCRIPTION, check_folder, replacing
from .header import with_imports
from .names import check_name, library_name
from .network_part import LACKING, NATIVE, SHARED, NetworkPart
from .packaging import network_packaging
from .plan import packaging_of
from .sources import target_tables

Examples = Sequence[tuple[Sequence[np.ndarray], Sequence[np.ndarray]]]
_POOL = ("pool", "processors")
# Functions that the header declares.
_PUBLIC = ("open", "close", "run", "run_with", "supported", "error_string", "error_text", "inputs", "outputs")
# Additional functions of a network with free extents.
_FREE = ("extents", "output_extents", "workspace_bytes")


def export_network(
    part: NetworkPart,
    isa: Isa,
    model: str,
    path: str | os.PathLike[str],
    name: str | None = None,
    examples: Examples = (),
    error: float = NETWORK_ERROR,
) -> Path:
    """Write a network as a library for C into the folder `path`: header, archive, shared library, and a test of them.

    An earlier export that is there is replaced whole, once the new one is complete.

    Parameters
    ----------
    part
        The network, as :func:`tvmconv.network.compile.export_part` returns it.
    isa
        The instruction set that it is for.
    model
        Name of the model, for the header's comment and `export.json`.
    path
        The folder to create, with missing parents.
    name
        The library's name and the prefix of its symbols; None: the folder's name.
    examples
        Input arrays with another library's outputs, for the test: one pair, or one for each size where extents are free; empty: no
        test is written.
    error
        Relative L2 error that the test allows.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If `name` is no identifier of C, or the name of a system header; if `path` is no path.
    BundleError
        If something else is at `path`.
    ToolchainError
        If the C compiler or binutils are missing, or fail.
    """
    path = as_path("path", path)
    name = check_export(path, name, isa)
    with replacing(path) as folder:
        _write(part, isa, model, name, examples, error, folder)
    return path


def check_export(path: Path, name: str | None, isa: Isa) -> str:
    """Check an export before the network is compiled; return the library's name. Parameters and errors as for :func:`export_network`."""
    check_folder(path)
    name = library_name(path.name) if name is None else check_name(name)
    check_tools(isa)
    check_header(name, isa)
    return name


def _write(part: NetworkPart, isa: Isa, model: str, name: str, examples: Examples, error: float, folder: Path) -> None:
    text = network_header.header(part, name, model)
    if packaging_of(isa).imports_data:
        text = with_imports(text, name)
    (folder / f"{name}.h").write_text(text)
    (folder / f"{name}.hpp").write_text(network_cpp_header(part, name))
    work = folder / "work"
    work.mkdir()
    (work / f"{name}.h").write_text(text)
    _build(part, isa, name, work, folder)
    shutil.rmtree(work)
    for file, content in network_packaging(name, isa, tested=bool(examples)).items():
        (folder / file).write_text(content)
    if examples:
        (folder / "smoke.c").write_text(
            _fill_name((NATIVE / "smoke.c").read_text(), name).replace(f"{name}_SMOKE_ERROR", str(error))
        )
        (folder / "smoke.bin").write_bytes(b"".join(_numbers(part, *each) for each in examples))
    described = {"format": "tvmconv-network", "format_version": 1, "name": name, "model": model, **part.description}
    (folder / DESCRIPTION).write_text(json.dumps({"tvmconv": __version__, **described}, indent=1) + "\n")


def _numbers(part: NetworkPart, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> bytes:
    """Return an example in the format of `smoke.bin`: the free extents, the inputs, the outputs."""
    free = FreeExtents(part.description, tensors_of(part.description, "inputs"))
    taken = free.of([each.shape for each in inputs])
    extents = np.array([size * each.multiple for size, each in zip(taken, free.extents, strict=True)], np.int64)
    return b"".join(np.ascontiguousarray(each).tobytes() for each in (extents, *inputs, *outputs))


def _build(part: NetworkPart, isa: Isa, name: str, work: Path, folder: Path) -> None:
    """Write the archive and the shared library, both from one object whose only global symbols are the header's."""
    how = packaging_of(isa)
    services = service_files(isa, _POOL)
    headers = (RUNTIME / each for each in ("tvmconv-runtime.h", "tvmconv-detect.h"))
    sources = [NATIVE / "api.c", *SHARED, *headers, *services]
    for source in sources:
        (work / source.name).write_text(_fill_name(source.read_text(), name))
    (work / "tables.c").write_text(network_header.tables(part, name))
    target = {part.description["target"]: part.description["features"]}
    (work / "tvmconv-targets.h").write_text(target_tables(isa, target))
    (work / "network.o").write_bytes(part.object)
    part.write_weights(work / "weights.bin")
    (work / "weights.s").write_text(how.weights.format(bytes=part.weight_bytes))
    files = ["api.c", "tables.c", *LACKING, *(each.name for each in services)]
    flags = (*c_flags(isa), "-Wno-sign-compare", *ffi_includes())
    for each in files:
        run_compiler((*flags, "-c", each, "-o", f"{each}.o"), work, isa)
    run_compiler(("-c", "weights.s", "-o", "weights.o"), work, isa)
    objects = (*(f"{each}.o" for each in files), "network.o", "weights.o")
    run_compiler((*isa.platform.relocatable_flags, *objects, "-o", "all.o"), work, isa)
    prepare_object(work / "all.o", isa)
    public = {f"{name}_{each}" for each in (*_PUBLIC, *(_FREE if network_header.extents_in(part) else ()))}
    select_symbols("all.o", f"{name}.o", sorted(public), work, isa, stripped="--strip-unneeded")
    write_archive(name, [f"{name}.o"], work, folder, isa)
    # Workers of the pool wait in the library's code, so it must not be unloaded (`Packaged.staying`).
    flags = (*how.thread_flags, *how.staying, "-lm")
    if how.shared:
        link_shared(name, [f"{name}.o"], public.__contains__, flags, work, folder, isa)


def _fill_name(text: str, name: str) -> str:
    return text.replace("tvmconv_name", name)
