"""The filters of a model's nodes, packed into a bundle (see `tvmconv.runtime.node_entries`)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from ..checks import as_path
from ..errors import SourceError
from ..family import ProblemFamily
from ..family_text import format_family, parse_family
from ..fills import numpy_dtype
from ..frontends.model import Constants, Model, SourceNode
from ..problem import Problem
from ..runtime.bundle import Bundle, read_bundle, write_manifest
from ..runtime.emulation import kernel_here
from ..runtime.family_kernel import FamilyKernel
from ..runtime.kernel import Kernel
from ..runtime.node_entries import FOLDER, Blob, NodeEntry, blob_file, size_of
from ..runtime.packed import plain_layout
from ..runtime.selection import BACKENDS, obstacle
from ..signature import format_signature
from ..support.files import write_whole
from ..support.folders import follow_link, link_or_copy, lock


def add_filters(path: str | os.PathLike[str], models: Sequence[Model]) -> int:
    """Add the constant arrays of models' nodes, filters above all, to the bundle at `path`, for the kernels that it has.

    Each filter is packed for each variant of its kernel that this machine can run, itself or under an emulator. For
    the other variants it is added as it is, and packed at the first call. Entries of the same nodes are replaced, also where these were
    fused differently.

    Parameters
    ----------
    path
        The bundle's folder.
    models
        Models that were read with `with_constants`.

    Returns
    -------
    int
        Bytes of all files of these models' nodes.

    Raises
    ------
    BundleError
        If there is no bundle, or a library of it is damaged.
    SourceError
        If no node of the models has a fixed filter and a kernel in the bundle, or two of them are called alike.
    """
    path = follow_link(as_path("path", path))
    with lock(path.parent):
        bundle = read_bundle(path)
        nodes = [
            made for model in models for node in model.nodes if (made := _entry(bundle, Path(model.source).name, node))
        ]
        if not nodes:
            raise SourceError(
                f"no convolution of {', '.join(m.source for m in models)} has a fixed filter and a kernel in {path}"
            )
        by_key: dict[tuple[str, str, str], NodeEntry] = {}
        for node in nodes:  # the same node once for each size of a family that was read
            if by_key.setdefault(node.key, node) != node:
                raise SourceError(
                    "two models have the same file name, which identifies their nodes in a bundle; rename one"
                )
        nodes = list(by_key.values())
        convolutions = set(map(_convolution, nodes))
        kept = [node for node in bundle.nodes if _convolution(node) not in convolutions]
        write_manifest(replace(bundle, nodes=(*kept, *nodes)))
        _remove_unused(path, {blob.file for node in (*kept, *nodes) for blob in node.blobs()})
    return size_of(nodes)


def _entry(bundle: Bundle, model: str, node: SourceNode) -> NodeEntry | None:
    kernels = _kernels(bundle, node)
    if node.constants is None or not kernels:
        return None
    if node.family and node.family.pads == "?":
        raise SourceError(
            f"{model}: the pads of {node.name!r} vary with the size by no known rule, so calls cannot derive them from their data;"
            " build it for each size, or without --with-filters"
        )
    constants = node.constants()
    filter_ = _filter_for(node.problem, constants)
    blobs = {}
    for kernel in kernels:
        if kernel is not None:
            packed = kernel.pack(filter_).of(kernel.filter_layout)
            blobs[packed.layout] = _write(bundle.path, packed.array)
        else:
            blobs[plain_layout(node.problem)] = _write(bundle.path, filter_)
    operands = node.problem.operands
    vectors = {
        name: _write(bundle.path, array.astype(numpy_dtype(operands[name][1])))
        for name in ("bias", "scale", "slope")
        if (array := getattr(constants, name)) is not None
    }
    bias = vectors.pop("bias", None)
    signature = format_family(node.family) if node.family else format_signature(node.problem)
    return NodeEntry(node.name, model, signature, constants.output, blobs, bias, **vectors, residual=node.residual)


def _kernels(bundle: Bundle, node: SourceNode) -> list[Kernel | None]:
    """Return the kernels of all variants that compute a node, None in place of those that this machine cannot run."""
    if node.family is None:
        signature = format_signature(node.problem)
        entries = [e for e in bundle.entries if e.signature == signature]
        return [kernel_here(bundle, e) for e in entries if BACKENDS[bundle.targets[e.target].kind].packs]
    return [
        FamilyKernel(bundle, each, node.problem) if obstacle(bundle.targets[each.target]) is None else None
        for each in bundle.families
        if parse_family(each.signature).obstacle(node.problem) is None
    ]


def _convolution(node: NodeEntry) -> tuple[str, str, Problem | ProblemFamily]:
    """Return the convolution of a node, whatever its kernel fuses."""
    return node.model, node.name, replace(node.problem, bias=False, epilogue=())


def _filter_for(problem: Problem, constants: Constants) -> np.ndarray:
    """Return a filter in a problem's layout and type."""
    filter_ = constants.filter
    if problem.filter_format == "XIO":
        filter_ = np.moveaxis(filter_, (1, 0), (-2, -1))
    return np.ascontiguousarray(filter_.astype(numpy_dtype(problem.dtype)))


def _write(folder: Path, content: np.ndarray) -> Blob:
    """Write the elements of an array into a bundle's folder, whole or not at all, unless they are there already."""
    data = content.tobytes()
    sha256 = hashlib.sha256(data).hexdigest()
    path = folder / blob_file(sha256)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        write_whole(path, data)
    return Blob(blob_file(sha256), sha256, len(data))


def _remove_unused(path: Path, used: set[str]) -> None:
    for file in (path / FOLDER).iterdir():
        if f"{FOLDER}/{file.name}" not in used and not file.name.startswith("."):
            file.unlink()


def carry_nodes(new: Bundle, old: Bundle) -> Bundle:
    """Return `new` with the nodes of `old`; their files are linked into the folder of `new`."""
    there = {node.key for node in new.nodes}
    kept = tuple(node for node in old.nodes if node.key not in there)
    for blob in {blob for node in kept for blob in node.blobs()}:
        target = new.path / blob.file
        target.parent.mkdir(exist_ok=True)
        if not target.exists():
            link_or_copy(old.path / blob.file, target)
    return replace(new, nodes=(*new.nodes, *kept))
