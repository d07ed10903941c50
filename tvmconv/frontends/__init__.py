"""Readers of convolutions: ONNX models, OpenVINO IR, exported PyTorch programs, TOML files, signatures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..checks import as_path, choice
from ..errors import SourceError
from ..problem import Problem
from ..signature import parse_signature
from .conversions import advise_conversion
from .model import Model as Model
from .model import Skipped as Skipped
from .model import SourceNode as SourceNode
from .model import Use as Use
from .reader import Reader, Reading
from .shapes import Bucket, make_buckets

if TYPE_CHECKING:
    from numpy import ndarray

# Ways to find the shapes inside a model.
SHAPES_BY = ("auto", "infer", "run")
MODELS = (".onnx", ".xml", ".pt2")
FILES = (*MODELS, ".toml")


def read_model(
    source: str,
    *,
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None = None,
    dims: Mapping[str, int | Sequence[int]] | None = None,
    batch: int | Sequence[int] | None = None,
    shapes_by: str = "auto",
    inputs: Mapping[str, ndarray] | None = None,
    dtype: str | None = None,
    data_format: str | None = None,
    filter_format: str | None = None,
    with_constants: bool = False,
    fuse: bool = True,
) -> Model:
    """Read the convolutions of a source; those that no kernel can be built for are listed with the reason.

    Parameters
    ----------
    source
        The path of an ``.onnx``, ``.xml`` (OpenVINO IR), ``.pt2`` (torch.export) or ``.toml`` file, or a signature.
    shapes
        The shapes of inputs by name (``""``: the only input). With a list of shapes, the model is read for each: the first
        values of all inputs and dimensions with several belong together, then the second, and so on.
    dims
        The sizes of named dimensions.
    batch
        The size of each input's dimension 0 that the model leaves free, at least 0. Several as for `shapes`.
    shapes_by
        ``"infer"``: by the shape inference of the model's own library. ``"run"``: by running the model once.
        ``"auto"``: by running it where the inference fails.
    inputs
        Inputs for that run by name; the others are random numbers, ones for integers, and true.
    dtype, data_format, filter_format
        Replace those of the source.
    with_constants
        Whether nodes get the model's constant filters and biases.
    fuse
        Whether operations after a model's convolution become its epilogue.

    Raises
    ------
    SourceError
        If the source does not exist or cannot be read, or the arguments do not fit it.
    SignatureError
        If `source` looks like a signature, but is malformed.
    InvalidProblemError
        If an argument has a value that is not allowed.
    MissingExtraError
        If a model is given and the library that reads it is not installed.
    """
    choice("shapes_by", shapes_by, SHAPES_BY, SourceError)
    buckets = make_buckets(shapes, dims, batch)
    overrides = {"dtype": dtype, "data_format": data_format, "filter_format": filter_format}
    changes = {name: value for name, value in overrides.items() if value is not None}
    suffix = as_path("source", source).suffix.lower()
    nodes: list[SourceNode] = []
    skipped: list[Skipped] = []
    if suffix not in MODELS:
        nodes = [SourceNode(place, problem) for place, problem in _read_problems(source, buckets)]
    else:
        reader = _reader(source, suffix, Reading(dtype, shapes_by, inputs or {}, with_constants, fuse))
        for bucket in buckets:
            found, left_out = reader.read(bucket)
            nodes += found
            skipped += left_out
    nodes = [replace(node, problem=node.problem.with_(**changes)) for node in nodes]
    return Model(source, tuple(dict.fromkeys(nodes)), tuple(dict.fromkeys(skipped)), suffix in MODELS)


def read_uses(source: str, **options: Any) -> list[Use]:
    """Read the distinct convolutions of a source, in the order in which they first appear.

    Parameters and errors are those of :func:`read_model`, and SourceError if a convolution has to be skipped.
    """
    model = read_model(source, **options)
    for skipped in model.skipped:
        raise SourceError(f"{source}: {skipped}")
    return model.uses()


def read_source(source: str, **options: Any) -> list[Problem]:
    """Return the problems of :func:`read_uses` alone."""
    return [use.problem for use in read_uses(source, **options)]


def _reader(source: str, suffix: str, how: Reading) -> Reader:
    content = _content(Path(source))
    if suffix == ".onnx":
        from .onnx import graph as onnx_graph  # noqa: F401 (first: its error names the extra to install if ONNX is missing)
        from .onnx.reader import OnnxReader

        return OnnxReader(content, source, how)
    if suffix == ".xml":
        from .openvino.reader import OpenvinoReader

        return OpenvinoReader(source, how)
    from .torch.reader import ExportReader

    return ExportReader(source, how)


def _read_problems(source: str, buckets: Sequence[Bucket]) -> Iterator[tuple[str, Problem]]:
    """Yield each problem of a signature or a TOML file with its place."""
    if any(bucket.shapes or bucket.dims for bucket in buckets):
        raise SourceError(f"shapes and dimensions are for models; {source!r} fixes its own: change them there")
    if Path(source).suffix.lower() == ".toml":
        from .toml import read_toml

        found = read_toml(_content(Path(source)), source)
    else:
        found = iter([(source, _signature(source))])
    for place, problem in found:
        for bucket in buckets:
            if bucket.batch not in (None, problem.batch):
                raise SourceError(
                    f"batch {bucket.batch} is for models with a free batch dimension; {source!r} fixes its own, "
                    f"{problem.batch}: change it there"
                )
        yield place, problem


def _signature(text: str) -> Problem:
    if text.startswith(("conv", "backprop")):
        return parse_signature(text)
    kinds = f"a source is a file ({', '.join(FILES)}) or a signature (see: tvmconv sig --help)"
    if _exists(Path(text)):
        kernels = "; a library's kernels: tvmconv explain LIBRARY.so" if text.endswith(".so") else ""
        raise SourceError(
            f"{text!r} exists, but is not a format that tvmconv reads: {kinds}{kernels}{advise_conversion(text)}"
        )
    raise SourceError(f"{text!r} is neither a file nor a signature: {kinds}{_nearest(Path(text))}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long or has a NUL byte is no file
        return False


def check_exists(path: Path) -> None:
    """Raise SourceError if there is no such file; it suggests one with a similar name."""
    if not _exists(path):
        raise _missing(path)


def _missing(path: Path) -> SourceError:
    return SourceError(f"there is no file {str(path)!r}{_nearest(path)}")


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise _missing(path) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SourceError(f"{str(path)!r} cannot be read: {reason}") from None


def _nearest(path: Path) -> str:
    """Suggest a source beside `path` with a similar name."""
    if not _exists(path.parent) or not path.parent.is_dir():
        return ""
    names = [entry.name for entry in path.parent.iterdir() if entry.suffix.lower() in FILES]
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {str(path.parent / close[0])!r}?" if close else ""
