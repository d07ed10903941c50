"""Pack a bundle or a network as a wheel, which needs only tvmconv's run-time half: import it, and call its kernels by name.

The same input gives the same bytes.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import keyword
import platform
import re
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from ..checks import as_path
from ..errors import InputError
from ..isa import isa_of
from ..runtime.bundle import read_bundle
from ..runtime.networks.file import library_path, read_file
from ..support.files import write_whole
from ..version import __version__

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_.][A-Za-z0-9]+)*", re.ASCII)
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?", re.ASCII)
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first that a zip file can have
_BUNDLE = '''\
"""Kernels of convolutions, built by tvmconv {by}: ``kernel(signature)(data, filter)``, ``node(name)(data)``."""

from functools import cache
from pathlib import Path

import tvmconv

SIGNATURES = {names!r}


@cache
def registry():
    """Return all kernels, opened once (`tvmconv.Registry`)."""
    return tvmconv.load(Path(__file__).with_name("kernels"))


def kernel(signature):
    """Return the kernel of a signature."""
    return registry()[signature]


def node(name):
    """Return a node of the model by its name, with the filter that the model has."""
    return registry().node(name)
'''
_NETWORK = '''\
"""A network, compiled by tvmconv {by}: ``run(**inputs)`` returns its outputs by name."""

from functools import cache
from pathlib import Path

import tvmconv

INPUTS = {names!r}


@cache
def network():
    """Return the network, loaded once (`tvmconv.Network`)."""
    return tvmconv.load_network(Path(__file__).with_name("network.so"))


def run(**inputs):
    """Return the outputs of inputs by name."""
    return network()(**inputs)
'''


def export_wheel(path: Path | str, folder: Path | str, name: str, version: str = "1.0") -> Path:
    """Write the wheel of a bundle or a network.

    Parameters
    ----------
    path
        The bundle, or the network's file.
    folder
        The folder for the wheel; created if missing.
    name, version
        Name and version of the distribution. The module has its name, with underscores.

    Returns
    -------
    Path
        The wheel's file.

    Raises
    ------
    InputError
        If `name` or `version` is invalid, `folder` is a file, or a bundle has code for several instruction sets or another system.
    BundleError
        If there is no bundle or network at `path`, or it is damaged.
    """
    path, folder = as_path("path", path), as_path("folder", folder)
    if not _NAME.fullmatch(name) or keyword.iskeyword(_normal(name)) or _normal(name) == "tvmconv":
        raise InputError(f"name is {name!r}; it must be a new Python distribution name, such as detector-kernels")
    if not _VERSION.fullmatch(version):
        raise InputError(f"version is {version!r}; it must be numbers separated by dots, such as 1.0")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"folder {folder} is not a folder; give an existing or new one to write the wheel to")
    module = _normal(name)
    if path.is_file():
        described = read_file(library_path(path)).description
        features: list[Iterable[str]] = [described["features"]]
        by = described["tvmconv"]
        text = _NETWORK.format(by=by, names=[each["name"] for each in described["inputs"]])
        content = {"network.so": path.read_bytes()}
    else:
        bundle = read_bundle(path)
        for entry in bundle.all_entries:
            bundle.library(entry)  # checks its sha256
        features, by = [target.features for target in bundle.targets.values()], bundle.tvmconv
        text = _BUNDLE.format(by=by, names=sorted({entry.signature for entry in bundle.all_entries}))
        files = sorted(each for each in path.rglob("*") if each.is_file())
        content = {f"kernels/{each.relative_to(path)}": each.read_bytes() for each in files}
    tag = f"py3-none-linux_{_machine(path, features)}"
    given = {f"{module}/{each}": data for each, data in content.items()} | {f"{module}/__init__.py": text.encode()}
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-{tag}.whl"
    write_whole(wheel, _archive(f"{module}-{version}.dist-info", name, version, tag, given))
    return wheel


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _machine(path: Path, features: Iterable[Iterable[str]]) -> str:
    """Return the machine of the wheel's platform tag; raise InputError if the variants are for several, or not for Linux."""
    isas = {isa for each in features if (isa := isa_of(each)) is not None}
    if ports := [isa.name for isa in isas if isa.port is not None]:
        raise InputError(f"{path} is for {ports[0]}, and wheels are supported for Linux only")
    found = {isa.machine for isa in isas}
    if len(found) > 1:
        raise InputError(f"{path} is for {' and '.join(sorted(found))}; a wheel is for one: build one bundle for each")
    return found.pop() if found else platform.machine()


def _archive(info: str, name: str, version: str, tag: str, given: Mapping[str, bytes]) -> bytes:
    """Return a wheel's bytes: the files, METADATA, WHEEL, and RECORD with their digests."""
    metadata = (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Summary: Convolution kernels compiled by tvmconv\nRequires-Dist: tvmconv>={__version__}\n"
    )
    about = f"Wheel-Version: 1.0\nGenerator: tvmconv {__version__}\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {**given, f"{info}/METADATA": metadata.encode(), f"{info}/WHEEL": about.encode()}
    record = io.StringIO()
    writer = csv.writer(record, lineterminator="\n")
    for each, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        writer.writerow((each, f"sha256={digest}", len(data)))
    writer.writerow((f"{info}/RECORD", "", ""))
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        for each, data in (*sorted(files.items()), (f"{info}/RECORD", record.getvalue().encode())):
            entry = zipfile.ZipInfo(each, _EPOCH)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    return result.getvalue()
