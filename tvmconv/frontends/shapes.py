"""Shapes of a model's inputs: free dimensions, and the caller's values for them.

Kernels are built for exact shapes. An input or a dimension may have several values: the model is read once for each (its
*buckets*); a single value holds for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from ..checks import integer, integers
from ..errors import SourceError

Shape = tuple[int, ...]
# A free dimension is its name, empty if it has none.
Dims = tuple[int | str, ...]


@dataclass(frozen=True)
class Input:
    """An input as its model declares it; without `dims`, its rank is free, too."""

    name: str
    dims: Dims | None

    def __str__(self) -> str:
        if self.dims is None:
            return f"{self.name} (of any rank)"
        return f"{self.name} ({'x'.join(str(dim) or '?' for dim in self.dims) or 'a number'})"


@dataclass(frozen=True)
class Bucket:
    """One value for each input and dimension that the caller specifies.

    Parameters
    ----------
    shapes
        Shapes of inputs by name; ``""`` names the only input.
    dims
        Sizes of dimensions by name.
    batch
        Size of each input's free dimension 0.
    values
        Values of inputs by name, which networks compile as constants.
    """

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None
    values: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.shapes or self.dims or self.batch is not None or self.values)


def make_buckets(
    shapes: Mapping[str, Sequence[int] | Sequence[Sequence[int]]] | None,
    dims: Mapping[str, int | Sequence[int]] | None,
    batch: int | Sequence[int] | None,
) -> list[Bucket]:
    """Return the buckets of a caller's arguments (see :func:`tvmconv.frontends.read_model`).

    Raises
    ------
    SourceError
        If two of them have several values, but different numbers of them.
    InvalidProblemError
        If a value is not a whole number of at least 0.
    """
    batches = [None] if batch is None else _batches(batch)
    all_shapes = {name: _shapes(name, value) for name, value in (shapes or {}).items()}
    all_dims = {name: _sizes(name, value) for name, value in (dims or {}).items()}
    several = {f"--shape {name}": len(given) for name, given in all_shapes.items() if len(given) > 1}
    several |= {f"--dim {name}": len(given) for name, given in all_dims.items() if len(given) > 1}
    several |= {"--batch": len(batches)} if len(batches) > 1 else {}
    if len(set(several.values())) > 1:
        given = ", ".join(f"{what} {times} times" for what, times in several.items())
        raise SourceError(f"{given} were given; values are paired in the order given: repeat each option equally often")
    return [
        Bucket(
            {name: given[min(i, len(given) - 1)] for name, given in all_shapes.items()},
            {name: given[min(i, len(given) - 1)] for name, given in all_dims.items()},
            batches[min(i, len(batches) - 1)],
        )
        for i in range(max(several.values(), default=1))
    ]


def _shapes(name: str, value: Sequence[int] | Sequence[Sequence[int]]) -> list[Shape]:
    items = list(value)
    several = bool(items) and all(isinstance(item, Sequence) for item in items)
    return [integers(f"shape of {name!r}", item, 0) for item in (items if several else [items])]


def _sizes(name: str, value: int | Sequence[int]) -> list[int]:
    items = value if isinstance(value, Sequence) else [value]
    return [integer(f"dimension {name!r}", item, 0) for item in items]


def _batches(value: int | Sequence[int]) -> list[int | None]:
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not items:
        raise SourceError("batch has no value; give a number, or several")
    return [integer("batch", item, 0) for item in items]


def bind(inputs: Sequence[Input], bucket: Bucket, source: str) -> dict[str, Dims | None]:
    """Return each input's dimensions with the bucket's values.

    Dimensions with the same name are one dimension: a shape for one input fixes that of the others.

    Raises
    ------
    SourceError
        If the bucket names an input or dimension that the model lacks, or contradicts the model or itself.
    """
    sizes = dict(bucket.dims)
    _check_dims(inputs, sizes, source)
    bound = {each.name: each.dims for each in inputs}
    for each, shape in _sizes_given(inputs, bucket, source):
        dims: Dims = each.dims if each.dims is not None else ("",) * len(shape)
        given = f"{source}: --shape {each.name}={'x'.join(map(str, shape))}"
        if len(dims) != len(shape):
            raise SourceError(f"{given} has {len(shape)} dimensions; the model's input is {each}")
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if isinstance(dim, int) and dim != size:
                raise SourceError(f"{given} has {size} at dimension {axis}, which the model fixes: {each}")
            if isinstance(dim, str) and dim and sizes.setdefault(dim, size) != size:
                raise SourceError(f"{given} has {size} for {dim!r}, which is {sizes[dim]} elsewhere; give one of them")
        bound[each.name] = shape
    for name, found in bound.items():
        bound[name] = found and tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in found)
    if bucket.batch is not None:
        _bind_batch(bound, bucket.batch, source)
    return bound


def bind_partly(inputs: Sequence[Input], shapes: Mapping[str, Sequence[int | None]], source: str) -> list[Input]:
    """Return inputs, some with the sizes of a given shape; None in a shape keeps the model's dimension."""
    numbers = {name: tuple(-1 if size is None else size for size in shape) for name, shape in shapes.items()}
    bound = {each.name: each for each in inputs}
    for each, shape in _sizes_given(inputs, Bucket(numbers), source):
        dims: Dims = each.dims if each.dims is not None else ("",) * len(shape)
        fits = len(dims) == len(shape) and all(
            size in (-1, dim) or isinstance(dim, str) for dim, size in zip(dims, shape, strict=True)
        )
        if not fits:
            given = "x".join("?" if size < 0 else str(size) for size in shape)
            raise SourceError(f"{source}: the shape {given} was given, and the model's input is {each}")
        bound[each.name] = Input(
            each.name, tuple(dim if size < 0 else size for dim, size in zip(dims, shape, strict=True))
        )
    return list(bound.values())


def _check_dims(inputs: Sequence[Input], sizes: Mapping[str, int], source: str) -> None:
    names = list(dict.fromkeys(dim for each in inputs for dim in each.dims or () if isinstance(dim, str) and dim))
    for name in sizes:
        if name not in names:
            has = f"its named ones are {', '.join(names)}" if names else "it names none: give whole shapes with --shape"
            raise SourceError(
                f"{source}: the model's inputs have no dimension {name!r}; {has}{_names_meant(name, names)}"
            )


def find_input(inputs: Sequence[Input], name: str, source: str) -> Input:
    """Return a model's input by its name; raise SourceError if it has none of that name."""
    for each in inputs:
        if each.name == name:
            return each
    listed = ", ".join(map(str, inputs)) or "none"
    meant = _names_meant(name, [each.name for each in inputs])
    raise SourceError(f"{source} has no input {name!r}; its inputs: {listed}{meant}")


def _sizes_given(inputs: Sequence[Input], bucket: Bucket, source: str) -> Iterator[tuple[Input, Shape]]:
    listed = ", ".join(map(str, inputs)) or "none"
    for name, shape in bucket.shapes.items():
        if name == "":
            if len(inputs) != 1:
                raise SourceError(f"{source} has {len(inputs)} inputs; write --shape NAME=SHAPE: {listed}")
            name = inputs[0].name
        yield find_input(inputs, name, source), shape


def _names_meant(name: str, names: Sequence[str]) -> str:
    close = get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _bind_batch(bound: dict[str, Dims | None], batch: int, source: str) -> None:
    free = {name: dims for name, dims in bound.items() if dims and isinstance(dims[0], str)}
    if not free and not any(dims and dims[0] == batch for dims in bound.values()):
        raise SourceError(
            f"{source}: batch {batch} was given, but no input of the model has a free dimension 0, and none is {batch}: "
            f"{', '.join(str(Input(name, dims)) for name, dims in bound.items()) or 'it has no inputs'}"
        )
    names = sorted({str(dims[0]) for dims in free.values()})
    if len(names) > 1:
        raise SourceError(
            f"{source}: batch {batch} was given, but dimension 0 is not the same in all inputs: {', '.join(names)}; "
            f"give each with {' '.join(f'--dim {name or chr(63)}={batch}' for name in names)}"
        )
    for name, dims in bound.items():
        if dims:
            same = (dim == names[0] and dim != "" for dim in dims) if names else (False for _ in dims)
            rest = [batch if is_batch else dim for is_batch, dim in zip(same, dims, strict=True)]
            bound[name] = (batch, *rest[1:]) if name in free else tuple(rest)


def free_dims(bound: Mapping[str, Dims | None]) -> list[str]:
    """Return the dimensions that are still free, as ``images[2] (height)``."""
    found = [f"{name} (its rank)" for name, dims in bound.items() if dims is None]
    return found + [
        f"{name}[{axis}]" + (f" ({dim})" if dim else "")
        for name, dims in bound.items()
        for axis, dim in enumerate(dims or ())
        if isinstance(dim, str)
    ]


def left_free(bound: Mapping[str, Dims | None]) -> str:
    """Return a message with a model's free dimensions and a remedy; empty if there are none."""
    free = free_dims(bound)
    if not free:
        return ""
    return (
        f"The model leaves free: {', '.join(free)}. Give its sizes, for example with {advice(bound)}, or ? for any size"
    )


def advice(bound: Mapping[str, Dims | None]) -> str:
    """Return options to paste that fix all free dimensions; the user adapts the numbers."""
    options, named = [], set()
    for name, dims in bound.items():
        if dims is None or any(isinstance(dim, str) and dim not in named for dim in dims):
            example = dims if dims is not None else ("", "")
            sizes = (dim if isinstance(dim, int) else 1 if axis == 0 else 256 for axis, dim in enumerate(example))
            options.append(f"--shape {name}={'x'.join(map(str, sizes))}")
            named |= {dim for dim in example if isinstance(dim, str) and dim}
    only_batch = all(dims is not None and all(isinstance(dim, int) for dim in dims[1:]) for dims in bound.values())
    return " ".join(options) + (", or --batch N" if only_batch else "")
