"""Sessions of onnxruntime in which a provider computes convolutions."""

from __future__ import annotations

import _ctypes
import atexit
import ctypes
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from ..checks import as_path
from ..errors import BundleError, InputError, MissingExtraError, UnsupportedMachineError, last_line, missing_extra
from ..exporting.provider_sources import CLAIMS, NETWORK
from ..runtime.bundle import MANIFEST
from ..runtime.networks.file import PROVIDER, read_file

if TYPE_CHECKING:
    from onnx import ModelProto

# First version with plug-in providers.
OLDEST = (1, 23)
# Libraries exported from bundles, by the manifests' hashes, until the process that exported them ends.
_made: dict[str, Path] = {}
_LOCK = Lock()


def session(
    model: str | os.PathLike[str],
    provider: str | os.PathLike[str],
    *,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
    options: Any = None,
    claims: str | None = None,
    networks: Sequence[int] | None = None,
) -> Any:
    """Return onnxruntime's session of a model, in which a provider computes the convolutions for which it has kernels.

    Parameters
    ----------
    model
        The path of an ONNX model.
    provider
        The library that ``tvmconv export-onnxruntime`` wrote, or a bundle, from which one is exported for this process.
    shapes, dims, batch
        Shapes of inputs with free dimensions by name (``""``: the only input; None in a shape: the model's dimension), sizes of free
        dimensions by name, and the size of a free dimension 0. Convolutions are only claimed if all dimensions are fixed, a network if
        those are free for which it was exported.
    options
        An ``onnxruntime.SessionOptions``, to which the provider is added; None: a new one.
    claims
        The provider's claim: ``"nothing"``, ``"convolutions"``, each with its epilogue, or ``"network"``, the whole graph. None: the
        fastest in the export's race.
    networks
        Identities of the graphs whose networks may be claimed; None: all.

    Returns
    -------
    onnxruntime.InferenceSession
        The session.

    Raises
    ------
    InputError, SourceError
        If there is no such file, the shapes do not fit the model, or `claims` is ``"network"`` and the library has no network for it.
    BundleError
        If `provider` is a bundle that is damaged or has no kernel for ONNX's layouts.
    MissingExtraError
        If onnxruntime is missing or older than 1.23.
    UnsupportedMachineError
        If onnxruntime refuses the library, for example because this CPU does not run its kernels.
    """
    ort = _onnxruntime()
    path = as_path("model", model)
    if not path.is_file():
        raise InputError(f"model is {str(path)!r}, and there is no such file; give the path of an ONNX model")
    library = _library(provider)
    name = register(library)
    options = ort.SessionOptions() if options is None else options
    if not isinstance(options, ort.SessionOptions):
        raise InputError(f"options is {options!r:.80}; it must be an onnxruntime.SessionOptions")
    if claims is not None and claims not in CLAIMS:
        raise InputError(f"claims is {claims!r}; allowed: {', '.join(CLAIMS)}")
    if networks is not None and not all(isinstance(each, int) and 0 <= each < 1 << 64 for each in networks):
        raise InputError(f"networks is {networks!r:.80}; give the identities of graphs, unsigned integers of 64 bits")
    devices = [each for each in ort.get_ep_devices() if each.ep_name == name][:1]
    chosen = {} if claims is None else {"claims": claims}
    if networks is not None:
        chosen["networks"] = ",".join(map(str, networks))
    options.add_provider_for_devices(devices, chosen)
    given = shapes is not None or dims is not None or batch is not None
    made = open_model(path, options, shapes, dims, batch) if given else ort.InferenceSession(str(path), options)
    if claims == NETWORK and (refusal := _refusal(library)):
        raise InputError(
            f"{path} cannot be claimed as a network: {refusal}; export it again, or choose another value of claims"
        )
    return made


def register(provider: str | os.PathLike[str]) -> str:
    """Register a provider with onnxruntime, unless it is registered already, and return its name.

    ``onnxruntime.unregister_execution_provider_library(name)`` unloads it, once no session uses it.

    Parameters and errors are those of :func:`session`.
    """
    ort = _onnxruntime()
    path = _library(provider)
    status = path.stat()
    key = f"{path} {status.st_ino} {status.st_mtime_ns} {status.st_size}"
    name = f"tvmconv-{hashlib.sha256(key.encode()).hexdigest()[:8]}"
    read_file(path, PROVIDER)  # loading a truncated or damaged library would crash this process
    if all(each.ep_name != name for each in ort.get_ep_devices()):
        try:
            ort.register_execution_provider_library(name, str(path))
        except Exception as error:  # of onnxruntime's own classes
            raise UnsupportedMachineError(f"onnxruntime cannot load {path}: {last_line(error)}") from error
    return name


def _library(provider: str | os.PathLike[str]) -> Path:
    """Return the path of a provider's library; for a bundle, of the library exported from it."""
    path = as_path("provider", provider)
    if (path / MANIFEST).is_file():
        path = _library_of(path)
    if not path.is_file():
        raise InputError(
            f"provider is {str(path)!r}, which is neither a library nor a bundle; write a library with: tvmconv export-onnxruntime MODEL -o {path.name}"
        )
    return path.resolve()


def _refusal(library: Path) -> str:
    """Return why this thread's last session has no network, which onnxruntime does not report."""
    with open_library(library) as opened:
        function = opened.tvmconv_provider_refusal
        function.restype = ctypes.c_char_p
        return str(function().decode())


@contextmanager
def open_library(library: str | os.PathLike[str]) -> Iterator[ctypes.CDLL]:
    """Open a library that onnxruntime has loaded, for its functions; it can be unloaded afterwards."""
    opened = ctypes.CDLL(os.path.abspath(library))
    try:
        yield opened
    finally:
        _ctypes.dlclose(opened._handle)


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise missing_extra("onnx", "onnxruntime") from None
    version = tuple(int(part) for part in onnxruntime.__version__.split(".")[:2])
    if version < OLDEST:
        raise MissingExtraError(
            f"this is onnxruntime {onnxruntime.__version__}; providers need 1.23 or later: pip install -U onnxruntime"
        )
    return onnxruntime


def _library_of(bundle: Path) -> Path:
    """Return the library exported from a bundle, once in a process."""
    from ..exporting.provider_library import export_provider

    try:
        key = hashlib.sha256((bundle / MANIFEST).read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise BundleError(f"{bundle}: its manifest cannot be read: {error.strerror or error}") from error
    with _LOCK:
        if key not in _made or not _made[key].is_file():  # after a fork, the parent may have ended
            folder = tempfile.mkdtemp(prefix="tvmconv-onnxruntime-")
            atexit.register(_remove, folder, os.getpid())
            _made[key] = export_provider(bundle, Path(folder) / f"{key}.so")
        return _made[key]


def _remove(folder: str, process: int) -> None:
    """Remove a folder at the end of the process that created it, not of its forked children."""
    if os.getpid() == process:
        shutil.rmtree(folder, ignore_errors=True)


def with_shapes(
    model: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
) -> bytes:
    """Return the content of an ONNX file with the model's input shapes fixed; parameters and errors are those of :func:`session`.

    Protobuf is limited to 2 GiB: for larger weights, pass the shapes to :func:`session`.
    """
    from onnx.external_data_helper import uses_external_data

    shaped = _load_shaped(model, shapes, dims, batch)
    if any(map(uses_external_data, shaped.graph.initializer)):
        raise InputError(
            f"{as_path('model', model)} has weights of 2 GiB or more, too many for one ONNX file; pass the shapes to session()"
        )
    content: bytes = shaped.SerializeToString()
    return content


def open_model(
    model: str | os.PathLike[str],
    options: Any,
    shapes: Mapping[str, Sequence[int | None]] | None = None,
    dims: Mapping[str, int] | None = None,
    batch: int | None = None,
) -> Any:
    """Return onnxruntime's session of a model with its input shapes fixed; parameters and errors are those of :func:`session`."""
    from ..frontends.onnx.session import open_session

    return open_session(_load_shaped(model, shapes, dims, batch), options=options)


def _load_shaped(
    model: str | os.PathLike[str],
    shapes: Mapping[str, Sequence[int | None]] | None,
    dims: Mapping[str, int] | None,
    batch: int | None,
) -> ModelProto:
    if any(isinstance(each, str) or not isinstance(each, Sequence) for each in (shapes or {}).values()):
        raise InputError(f"shapes is {shapes!r:.200}; give one shape for each input, such as {{'x': (1, 3, 224, 224)}}")
    from ..frontends.onnx import graph as onnx_graph
    from ..frontends.onnx.load import load
    from ..frontends.onnx.weights import load_weights
    from ..frontends.shapes import bind, bind_partly, make_buckets

    path = as_path("model", model)
    try:
        read = load(path.read_bytes(), str(path), inline=False)
        load_weights(read, path.parent)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    partly = {name: shape for name, shape in (shapes or {}).items() if None in shape}
    fixed: Any = {name: shape for name, shape in (shapes or {}).items() if name not in partly}
    buckets = make_buckets(fixed, dims, batch)
    if len(buckets) > 1:
        raise InputError("a session has one shape; give one for each input and dimension")
    bound = bind(bind_partly(onnx_graph.declared_inputs(read.graph), partly, str(path)), buckets[0], str(path))
    return onnx_graph.with_inputs(read, bound)
