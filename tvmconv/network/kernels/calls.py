"""Calls of a bundle's kernels from a network: their names, and the functions that answer to these in a process that runs it.

TVM's virtual machine looks functions that are not in the network's library up by name when it is made. The name has the
digest of the kernel's library, so nothing but the kernel that the network was compiled for can answer.
"""

from __future__ import annotations

import os
import re
import shlex
from typing import Any

import tvm_ffi

from ...errors import BundleError, VerificationError
from ...runtime.bundle import Bundle, Entry, read_bundle
from ...runtime.library import load_function
from ...runtime.packed import PACKED_SYMBOL

_SEPARATOR = "_"
_NAME = re.compile(rf"(tvmconv_[a-z]+){_SEPARATOR}([0-9a-f]{{64}})")


def function_name(entry: Entry) -> str:
    """Return the name by which networks call an entry's kernel with a filter as it wants it."""
    return f"{entry.symbol if entry.packed_filter is None else PACKED_SYMBOL}{_SEPARATOR}{entry.sha256}"


def register_calls(executable: Any, network: str | os.PathLike[str], bundle: str | os.PathLike[str] | None) -> None:
    """Register what a network calls of a bundle, in this process.

    Parameters
    ----------
    executable
        The network's library, loaded by TVM.
    network
        Its path, for errors.
    bundle
        The bundle; None: it needs none.

    Raises
    ------
    BundleError
        If the network calls kernels and no bundle is given, or one that has not all of them; or the bundle or a library
        of it is damaged.
    VerificationError
        If ``tvmconv verify`` found one of the kernels wrong.
    """
    names = sorted({(found[0], found[1], found[2]) for found in _NAME.finditer(str(executable["stats"]()))})
    if bundle is None:
        if not names:
            return
        raise BundleError(
            f"{network} calls {len(names)} kernels of a bundle; say which: tvmconv run {shlex.quote(str(network))} --bundle"
            " BUNDLE, or load(path, bundle=...)"
        )
    if not names:
        raise BundleError(
            f"{network} calls no kernel of a bundle, its own are part of it; leave {os.fspath(bundle)} out"
        )
    read = read_bundle(bundle)
    entries = {entry.sha256: entry for entry in read.entries}
    lacking = [name for name, _, digest in names if digest not in entries]
    if lacking:
        raise BundleError(
            f"{read.path} lacks {len(lacking)} of the {len(names)} kernels that {network} calls, such as {lacking[0]}: it is"
            f" not the bundle that the network was compiled with, or was built again since; compile the network again"
        )
    for name, symbol, digest in names:
        tvm_ffi.register_global_func(name, _function(read, entries[digest], symbol), override=True)


def _function(bundle: Bundle, entry: Entry, symbol: str) -> Any:
    if entry.verified is False:
        raise VerificationError(
            f"tvmconv verify found the kernel for {entry.signature} in {bundle.path} wrong; build it again:"
            f" tvmconv build {entry.signature} -o {shlex.quote(str(bundle.path))}, and compile the network again"
        )
    return load_function(bundle, entry, symbol)
