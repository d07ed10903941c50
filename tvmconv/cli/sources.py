"""Arguments for sources of convolutions: models, files of problems, signatures, and the shapes of models."""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
import zlib
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import InvalidProblemError, SourceError
from ..family import Extent, ProblemFamily
from ..family_text import is_family, parse_family
from ..problem import DATA_FORMATS, DTYPES, FILTER_FORMATS, Problem
from ..signature import OPS_BY_PREFIX
from .parsing import unsigned

if TYPE_CHECKING:
    from numpy import ndarray

    from ..frontends import Model, Skipped

_Value = TypeVar("_Value")
SOURCE = (
    "an ONNX file, an OpenVINO IR (.xml), an exported PyTorch program (.pt2), a TOML file of problems, or a signature"
)


def add_sources(parser: argparse.ArgumentParser, free: bool = False, also: str = "") -> None:
    """Add ``SOURCE...`` and its options; `free`: extents of inputs may be free; `also`: other kinds of sources, for the help text."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help=f"{SOURCE}; {also}" if also else SOURCE)
    add_source_options(parser, free)


def add_source_options(parser: argparse.ArgumentParser, free: bool = False) -> None:
    """Add the options that complete or override sources; `free`: extents of inputs may be free."""
    from ..frontends import SHAPES_BY

    parser.add_argument(
        "--shape",
        action="append",
        type=parse_free_shape if free else parse_shape,
        default=[],
        metavar="NAME=1x3x640x640",
        help="the shape of a model's input; a single input needs no NAME=. If repeated, kernels are built for each"
        " shape; the first shapes of all inputs belong together, then the second"
        + (
            ". 1x3x?x?: every height and width, with one kernel; ?%%32 is a multiple of 32, ?[32:4096] a range, h an"
            " extent that is the same wherever it appears"
            if free
            else ""
        ),
    )
    parser.add_argument(
        "--dim",
        action="append",
        type=parse_dim,
        default=[],
        metavar="NAME=N",
        help="the size of a named dimension; may be repeated like --shape",
    )
    parser.add_argument(
        "--batch",
        action="append",
        type=unsigned,
        metavar="N",
        help="the size of a free batch dimension; may be repeated like --shape",
    )
    parser.add_argument(
        "--shapes",
        choices=SHAPES_BY,
        default="auto",
        help="how shapes inside a model are found. infer: by ONNX's inference; run: by running it once; auto "
        "(default): by running it where inference fails",
    )
    parser.add_argument(
        "--inputs",
        action="append",
        default=[],
        metavar="FILE.npz",
        help="inputs for that run: arrays by name, or NAME=NUMBER to fill one with a number; others are random"
        " (integers are ones)",
    )
    parser.add_argument(
        "--no-skip",
        dest="skip",
        action="store_false",
        help="fail if a convolution of a model must be skipped",
    )
    parser.add_argument(
        "--no-fuse",
        dest="fuse",
        action="store_false",
        help="do not fuse what follows a model's convolutions (normalizations, activations, sums) into their kernels",
    )
    parser.add_argument("--dtype", choices=DTYPES, help="build for this type instead")
    parser.add_argument("--data-format", choices=DATA_FORMATS, help="build for this data layout instead")
    parser.add_argument("--filter-format", choices=FILTER_FORMATS, help="build for this filter layout instead")


def read_models(
    arguments: argparse.Namespace,
    sources: Sequence[str] | None = None,
    constants: bool = False,
    required: bool = True,
) -> list[Model]:
    """Read the sources of :func:`add_sources`, and print each model's contents to stderr.

    Parameters
    ----------
    arguments
        Those of :func:`add_sources`.
    sources
        The sources; None: ``arguments.sources``.
    constants
        Whether to read the models' constant filters.
    required
        Whether there has to be a convolution to build.

    Raises
    ------
    SourceError
        If a source cannot be read, or has a convolution that must be skipped although the arguments forbid it; or if
        all of them together hold no convolution to build, and one is required.
    """
    from ..frontends import read_model

    sources = arguments.sources if sources is None else sources
    how = _reading(arguments, constants)
    models = [read_model(source, shapes=by_name(arguments.shape), **how) for source in sources]
    for model in models:
        reasons = reasons_of(model.skipped)
        if model.skipped and not arguments.skip:
            raise SourceError(f"{model.source}: {reasons[0]}; without --no-skip it is skipped")
        if required and model.skipped and not any(each.nodes for each in models):
            raise SourceError(f"{model.source}: no kernel can be built: {reasons[0]}")
        if model.is_model:
            lines = [f"{model.source}: {model.summary()}", *(f"skipped: {why}" for why in reasons)]
            print("\n  ".join(lines), file=sys.stderr)
    if required and not any(model.nodes for model in models):
        raise SourceError(f"no convolution in {', '.join(sources)}")
    return models


def _reading(arguments: argparse.Namespace, constants: bool) -> dict[str, Any]:
    """Return the options of :func:`tvmconv.read_model` but for the shapes."""
    return {
        "dims": by_name(arguments.dim),
        "batch": arguments.batch,
        "shapes_by": arguments.shapes,
        "inputs": read_inputs(arguments.inputs),
        "dtype": arguments.dtype,
        "data_format": arguments.data_format,
        "filter_format": arguments.filter_format,
        "with_constants": constants,
        "fuse": arguments.fuse,
    }


def split_families(
    arguments: argparse.Namespace, constants: bool
) -> tuple[list[ProblemFamily], list[Model], list[str]]:
    """Return the families among the sources, the models read with free input extents, and the other sources.

    Raises
    ------
    SourceError
        If a model cannot be read at other sizes.
    SignatureError
        If a source looks like a family's text, but is malformed.
    """
    from ..frontends.families import read_families

    texts = [source for source in arguments.sources if source.startswith(tuple(OPS_BY_PREFIX)) and is_family(source)]
    others = [source for source in arguments.sources if source not in texts]
    families = [parse_family(text) for text in texts]
    free, named = split_shapes(arguments.shape)
    if not free:
        return families, [], others
    arguments.shape = [pair for shapes in named for pair in shapes.items()]
    models: list[Model] = []
    how = _reading(arguments, constants)
    for source, shapes in product(others, free):
        model = read_families(source, shapes, **how)
        models.append(model)
        free_ones, fixed = families_of([model]), {node.problem for node in model.nodes if node.family is None}
        print(f"{source}: {len(free_ones)} families of convolutions, and {len(fixed)} of one size", file=sys.stderr)
    return families, models, others if named else []


def families_of(models: Sequence[Model]) -> list[ProblemFamily]:
    """Return the families of models with free extents."""
    from ..frontends.families import served_by

    found = (served_by(node.family) for model in models for node in model.nodes if node.family is not None)
    return list(dict.fromkeys(found))


def split_shapes(
    pairs: Sequence[tuple[str, tuple[int, ...] | tuple[Extent, ...]]],
) -> tuple[list[dict[str, tuple[Extent, ...]]], list[dict[str, tuple[int, ...]]]]:
    """Return the shapes of ``--shape`` by input: those with free extents, and fixed ones.

    The first shapes of all inputs belong together, then the second; an input's only shape holds for all.

    Raises
    ------
    SourceError
        If inputs with several shapes differ in their number.
    """
    given = by_name(pairs)
    counts = {len(shapes) for shapes in given.values()} - {1}
    if len(counts) > 1:
        told = ", ".join(f"--shape {name or 'of the input'} {len(shapes)} times" for name, shapes in given.items())
        raise SourceError(
            f"{told} were given; shapes are paired in the order given: repeat --shape equally often for each input"
        )
    free: list[dict[str, tuple[Extent, ...]]] = []
    named: list[dict[str, tuple[int, ...]]] = []
    for number in range(max(counts, default=1)):
        row = {name: shapes[min(number, len(shapes) - 1)] for name, shapes in given.items()}
        extents = {name: tuple(map(Extent.of, shape)) for name, shape in row.items()}
        if any(isinstance(each, Extent) for shape in row.values() for each in shape):
            free.append(extents)
        elif row:
            named.append({name: tuple(each.low for each in shape) for name, shape in extents.items()})
    return free, named


def problems_of(models: Sequence[Model]) -> list[Problem]:
    """Return the problems of fixed size of all models, in order, with repetitions."""
    return [node.problem for model in models for node in model.nodes if node.family is None]


def network_of(models: Sequence[Model]) -> list[Problem]:
    """Return the layers of the largest network, with repetitions; none if a source is no model."""
    if not all(model.is_model for model in models):
        return []
    layers = (problems_of([model]) for model in models)
    return max(layers, key=lambda each: sum(problem.filter_bytes for problem in each))


def reasons_of(skipped: Sequence[Skipped]) -> list[str]:
    """Return a line for each reason why nodes are skipped, which names the first of them."""
    groups: dict[str, list[Skipped]] = {}
    for each in skipped:
        groups.setdefault(each.cause or each.reason, []).append(each)
    more = (f" ({len(nodes) - 1} more like it)" if len(nodes) > 1 else "" for nodes in groups.values())
    return [f"{nodes[0]}{text}" for nodes, text in zip(groups.values(), more, strict=True)]


def by_name(pairs: Sequence[tuple[str, _Value]]) -> dict[str, list[_Value]]:
    """Return the values of each name, in their order."""
    values: dict[str, list[_Value]] = {}
    for name, value in pairs:
        values.setdefault(name, []).append(value)
    return values


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse ``NAME=1x3x640x640``, or a shape alone."""
    name, _, sizes = text.rpartition("=")
    if not re.fullmatch(r"[0-9]{1,18}(x[0-9]{1,18})*", sizes, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not an input shape; write NAME=1x3x640x640, or 1x3x640x640")
    return name, tuple(int(size) for size in sizes.split("x"))


def parse_free_shape(text: str) -> tuple[str, tuple[int, ...] | tuple[Extent, ...]]:
    """Parse a shape like :func:`parse_shape`, or one with free extents: ``NAME=1x3x?x?``."""
    name, _, sizes = text.rpartition("=")
    if re.fullmatch(r"[0-9x]*", sizes):
        return parse_shape(text)
    try:
        return name, tuple(map(Extent.parse, sizes.split("x")))
    except InvalidProblemError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not an input shape: {error}") from error


def parse_dim(text: str) -> tuple[str, int]:
    """Parse ``NAME=640``."""
    name, equals, size = text.rpartition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not the size of a dimension; write NAME=640")
    return name, unsigned(size)


def parse_value(text: str) -> tuple[str, float]:
    """Parse ``NAME=16000``."""
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        name = ""
    raise argparse.ArgumentTypeError(f"{text!r} is not the value of an input; write NAME=16000")


def read_inputs(given: Sequence[str]) -> dict[str, ndarray]:
    """Return the arrays of ``--inputs`` by name; ``""`` stands for the only input."""
    import numpy as np

    arrays: dict[str, ndarray] = {}
    for text in given:
        name, _, path = text.rpartition("=") if text.endswith(".npy") else ("", "", text)
        if path.endswith((".npz", ".npy")):
            try:
                saved = np.load(path, allow_pickle=False)
                arrays.update({name: saved} if isinstance(saved, np.ndarray) else saved)
            except OSError as error:
                raise SourceError(f"--inputs: cannot read {path}: {error.strerror or error}") from error
            except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
                writer = "savez" if path.endswith("z") else "save"
                raise SourceError(f"--inputs: {path} is not a file from numpy.{writer}, or is cut off") from error
            continue
        name, equals, number = text.rpartition("=")
        try:
            arrays[name] = np.array(int(number) if re.fullmatch(r"-?[0-9]{1,18}", number) else float(number))
        except ValueError:
            equals = ""
        if not name or not equals:
            raise SourceError(
                f"--inputs is {text!r}; give a file from numpy.savez (FILE.npz), NAME=FILE.npy, or NAME=NUMBER"
            )
    return arrays
