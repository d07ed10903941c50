"""What people have convolutions in: ONNX models, TOML files of problems, signatures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from ..checks import integer
from ..errors import SourceError
from ..problem import Problem
from ..signature import parse_signature


@dataclass(frozen=True)
class Use:
    """A distinct problem of a source, and where the source has it.

    Parameters
    ----------
    problem
        The problem, with the overrides applied.
    places
        The names of the model's nodes, the positions of a file's tables, or the signature itself.
    """

    problem: Problem
    places: tuple[str, ...]


def read_uses(
    source: str,
    *,
    batch: int | None = None,
    dtype: str | None = None,
    data_format: str | None = None,
    filter_format: str | None = None,
) -> list[Use]:
    """Read the distinct convolutions of a source, in the order in which they first appear.

    Parameters
    ----------
    source
        The path of an ``.onnx`` or a ``.toml`` file, or a signature.
    batch
        The size of a model's free batch dimension, at least 0.
    dtype, data_format, filter_format
        Replace what the source says.

    Raises
    ------
    SourceError
        If the source does not exist, or cannot be read as convolutions of known shapes.
    SignatureError
        If `source` reads like a signature, but is none.
    InvalidProblemError
        If an override is not one of its values.
    MissingExtraError
        If a model is given and the ``onnx`` package is not installed.
    """
    if batch is not None:
        batch = integer("batch", batch, 0)
    overrides = {"dtype": dtype, "data_format": data_format, "filter_format": filter_format}
    changes = {name: value for name, value in overrides.items() if value is not None}
    places: dict[Problem, list[str]] = {}
    for place, problem in _read(source, batch, dtype):
        places.setdefault(problem.with_(**changes), []).append(place)
    return [Use(problem, tuple(names)) for problem, names in places.items()]


def read_source(
    source: str,
    *,
    batch: int | None = None,
    dtype: str | None = None,
    data_format: str | None = None,
    filter_format: str | None = None,
) -> list[Problem]:
    """Return the problems of :func:`read_uses` alone."""
    uses = read_uses(source, batch=batch, dtype=dtype, data_format=data_format, filter_format=filter_format)
    return [use.problem for use in uses]


def _read(source: str, batch: int | None, dtype: str | None) -> Iterator[tuple[str, Problem]]:
    """Yield each convolution of a source with its place, repeated ones too."""
    path = Path(source)
    suffix = path.suffix.lower()
    if suffix not in (".onnx", ".toml"):
        _refuse_batch(source, batch)
        yield source, _signature(source)
        return
    content = _content(path)
    if suffix == ".onnx":
        from .onnx import read_onnx

        yield from read_onnx(content, source, batch, dtype)
    else:
        from .toml import read_toml

        _refuse_batch(source, batch)
        yield from read_toml(content, source)


def _refuse_batch(source: str, batch: int | None) -> None:
    if batch is not None:
        raise SourceError(
            f"batch {batch} is for models with a free batch dimension; {source!r} fixes its own: change it there"
        )


def _signature(text: str) -> Problem:
    if text.startswith(("conv", "backprop")):
        return parse_signature(text)
    kinds = "a source is an .onnx file, a .toml file or a signature (see: tvmconv sig --help)"
    if _exists(Path(text)):
        raise SourceError(f"{text!r} exists, but is none that can be read: {kinds}")
    raise SourceError(f"{text!r} is no file and no signature: {kinds}{_nearest(Path(text))}")


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name too long or with a NUL byte is no file
        return False


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SourceError(f"there is no file {str(path)!r}{_nearest(path)}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise SourceError(f"{str(path)!r} cannot be read: {reason}") from None


def _nearest(path: Path) -> str:
    """Suggest a source beside `path` whose name is close to it."""
    if not _exists(path.parent) or not path.parent.is_dir():
        return ""
    names = [entry.name for entry in path.parent.iterdir() if entry.suffix.lower() in (".onnx", ".toml")]
    close = get_close_matches(path.name, names, n=1)
    return f"; did you mean {str(path.parent / close[0])!r}?" if close else ""
