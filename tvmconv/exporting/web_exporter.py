"""Export a compiled network for browsers: modules of WebAssembly, the weights, and scripts and a page that load them."""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ..checks import as_path
from ..errors import SourceError
from ..runtime.kernel_object import with_custom_section
from ..version import __version__
from .exporter import DESCRIPTION, check_folder, replacing
from .network_part import NetworkPart

_FILES = Path(__file__).with_name("web")
# Limit of 32-bit addresses, less some memory for the allocator.
MOST_BYTES = 2**32 - 2**26
_MODULES = "/* MODULES */ []"


def export_web(parts: Mapping[str, NetworkPart], model: str, path: str | os.PathLike[str]) -> Path:
    """Write a network for browsers into the folder `path`.

    An earlier export that is there is replaced whole, once the new one is complete.

    Parameters
    ----------
    parts
        Modules of one network by the names of their targets, the best first, as :func:`tvmconv.network.compile.export_parts` returns them.
    model
        Name of the model, for the page and the descriptions.
    path
        The folder to create, with missing parents.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    InputError
        If `path` is no path.
    BundleError
        If something else is at `path`.
    SourceError
        If the network needs more memory than 32-bit addresses reach.
    """
    path = check_web(path)
    first = next(iter(parts.values()))
    if first.description["peak_bytes"] > MOST_BYTES:
        raise SourceError(
            f"{model} takes {first.description['peak_bytes'] / 1e9:.1f} GB in a call; WebAssembly can address {MOST_BYTES / 1e9:.1f}"
        )
    with replacing(path) as folder:
        _write(parts, model, folder)
    return path


def check_web(path: str | os.PathLike[str]) -> Path:
    """Check an export's folder before the network is compiled, and return its path; errors as for :func:`export_web`."""
    path = as_path("path", path)
    check_folder(path)
    return path


def _write(parts: Mapping[str, NetworkPart], model: str, folder: Path) -> None:
    first = next(iter(parts.values()))
    modules = []
    for target, part in parts.items():
        known = ("target", "inputs", "outputs", "steps", "arena_bytes")
        described = {key: part.description[key] for key in known} | {"weight_bytes": part.weight_bytes}
        content = json.dumps({"tvmconv": __version__, **described}).encode()
        for library, kind in ((part.threaded, "-threads"), (part.object, "")):
            if library is not None:
                name = f"model{target.removeprefix('wasm32')}{kind}.wasm"
                (folder / name).write_bytes(with_custom_section(library, "tvmconv.description", content))
                modules.append({"file": name, "features": part.description["features"], "threads": bool(kind)})
    first.write_weights(folder / "model.weights")
    for source in filter(Path.is_file, _FILES.iterdir()):  # pip leaves __pycache__ beside serve.py
        (folder / source.name).write_text(
            source.read_text().replace(_MODULES, json.dumps(modules)).replace("MODEL", html.escape(model))
        )
    name = re.sub(r"[^a-z0-9._-]+", "-", Path(model).stem.lower()).strip("-._") or "model"
    package = {
        "name": name,
        "version": "1.0.0",
        "description": f"{model}, compiled by tvmconv {__version__}",
        "type": "module",
        "exports": {".": {"types": "./model.d.ts", "default": "./model.js"}, "./*": "./*"},
        "files": ["*.wasm", "model.weights", "*.js", "*.d.ts", "index.html"],
    }
    (folder / "package.json").write_text(json.dumps(package, indent=2) + "\n")
    (folder / DESCRIPTION).write_text(
        json.dumps(
            {"tvmconv": __version__, "format": "tvmconv-web", "format_version": 1, "model": model, **first.description},
            indent=1,
        )
        + "\n"
    )
