"""`Problem`: one convolution with every rule resolved to explicit numbers.

Problems are canonical: two ways to write one convolution give equal Problems. They have no `auto_pad`, `output_shape` or `same_rule`,
which `tvmconv.ops` resolves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import gcd, prod
from typing import Literal

from .checks import axes, choice, integer, integers, within_reach
from .dtypes import DTYPE_BYTES, FLOATS, QUANTIZED, Types, is_integer, types_of
from .epilogue import OPERANDS, Step, parse_epilogue
from .errors import InvalidProblemError
from .integers import check_sums, check_types, largest_numbers

Op = Literal["convolution", "convolution_backprop_data"]
OPS: tuple[str, ...] = ("convolution", "convolution_backprop_data")
DTYPES = FLOATS
DATA_FORMATS: tuple[str, ...] = ("NXC", "NCX")
FILTER_FORMATS: tuple[str, ...] = ("XIO", "OIX")


@dataclass(frozen=True, slots=True)
class Problem:
    """One convolution, resolved and canonical.

    Build one with :func:`tvmconv.ops.convolution` or :func:`tvmconv.ops.convolution_backprop_data`,
    which take attributes as users write them; the constructor checks and canonicalizes explicit numbers.

    Parameters
    ----------
    op
        ``"convolution"`` or ``"convolution_backprop_data"``.
    batch
        N, at least 0.
    in_channels, out_channels
        Channels of `data` and of `output`, each a multiple of `groups`, at least 0.
    in_spatial, out_spatial
        Spatial extents of `data` and of `output`, one to three numbers, each at least 1.
    kernel
        Filter taps per spatial axis, at least 0 (0: an empty window).
    strides, dilations
        Per spatial axis, at least 1. Canonical: the dilation of a single tap is 1, and the stride of a single output
        the least that gives `out_spatial`.
    pads_begin, pads_end
        Per spatial axis, at least 0. Canonical: `pads_end` is the least that gives `out_spatial`.
    groups
        At least 1.
    dtype
        ``"f32"``, ``"f16"`` or ``"bf16"``: the type of data, filter, bias and output. Or the types of data, filter and output, such as
        ``"u8s8u8"``: data of u8 or s8; a filter of s8, u8 or s16; outputs of s32, a floating-point type, u8 or s8. Sums are then exact.
    data_format, filter_format
        ``"NXC"`` or ``"NCX"``; ``"XIO"`` or ``"OIX"``.
    bias
        Whether a bias, one value per output channel, is added.
    epilogue
        The steps after the bias, or their text (:mod:`tvmconv.epilogue`). Canonical: without steps that change nothing.
    zero_point, filter_zero_point
        For integers: the number subtracted from each element of data, and of the filter. Padding is the zero point.
    bias_dtype
        The bias' type with integers: ``"s32"``, added to the sums, or ``"f32"``, added after the first step if that is `scale`, else
        to the sums. Canonical: ``"s32"`` as the default; empty without a bias and for floating-point types.

    Raises
    ------
    InvalidProblemError
        If a number is out of range or the extents contradict each other.
    """

    op: Op
    batch: int
    in_channels: int
    in_spatial: tuple[int, ...]
    out_channels: int
    out_spatial: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    groups: int = 1
    data_format: str = "NXC"
    filter_format: str = "XIO"
    dtype: str = "f32"
    bias: bool = False
    epilogue: tuple[Step, ...] = ()
    zero_point: int = 0
    filter_zero_point: int = 0
    bias_dtype: str = ""

    def __post_init__(self) -> None:
        self._check_fields()
        object.__setattr__(self, "epilogue", parse_epilogue(self.epilogue))
        for name, value in check_types(self, self.types).items():
            object.__setattr__(self, name, value)
        strides, dilations, ends = zip(*map(self._canonical_axis, range(self.rank)), strict=True)
        object.__setattr__(self, "strides", strides)
        object.__setattr__(self, "dilations", dilations)
        object.__setattr__(self, "pads_end", ends)
        self._check_sizes()
        if self.is_quantized:
            check_sums(self.types, self.products, self._largest_product)

    def _check_fields(self) -> None:
        """Check each field by itself; convert its numbers to plain ints and tuples."""
        choices = (
            ("op", OPS),
            ("dtype", (*DTYPES, *QUANTIZED)),
            ("data_format", DATA_FORMATS),
            ("filter_format", FILTER_FORMATS),
        )
        for name, allowed in choices:
            choice(name, getattr(self, name), allowed)
        if not isinstance(self.bias, bool):
            raise InvalidProblemError(f"bias is {self.bias!r}; it must be True or False")
        for name, least in (("batch", 0), ("in_channels", 0), ("out_channels", 0), ("groups", 1)):
            object.__setattr__(self, name, integer(name, getattr(self, name), least))
        object.__setattr__(self, "in_spatial", integers("in_spatial", self.in_spatial, 1))
        if not 1 <= self.rank <= 3:
            raise InvalidProblemError(
                f"there are {self.rank} spatial axes; 1, 2 or 3 are supported (arrays of rank 3 to 5)"
            )
        for name, least in (
            ("out_spatial", 1),
            ("kernel", 0),
            ("strides", 1),
            ("dilations", 1),
            ("pads_begin", 0),
            ("pads_end", 0),
        ):
            object.__setattr__(self, name, axes(name, getattr(self, name), self.rank, least))
        for name in ("in_channels", "out_channels"):
            if getattr(self, name) % self.groups:
                raise InvalidProblemError(
                    f"{name} is {getattr(self, name)}, which groups={self.groups} does not divide"
                )

    def _check_sizes(self) -> None:
        """Refuse sizes that 32-bit indices cannot reach."""
        # Kernels index padding too: around the input, or around the output before it is cut off.
        if self.op == "convolution":
            padded, channels, inner = "data with its pads", self.in_channels, self.in_spatial
        else:
            padded, channels, inner = "the output with its pads", self.out_channels, self.out_spatial
        extents = (sum(axis) for axis in zip(inner, self.pads_begin, self.pads_end, strict=True))
        for name, shape in (
            ("data", self.data_shape),
            ("filter", self.filter_shape),
            ("output", self.output_shape),
            (padded, (self.batch, channels, *extents)),
        ):
            within_reach(shape, name)

    def _canonical_axis(self, axis: int) -> tuple[int, int, int]:
        """Check the extents of one axis against each other; return its canonical (stride, dilation, pad_end)."""
        x, y, k = self.in_spatial[axis], self.out_spatial[axis], self.kernel[axis]
        s, d, begin, end = self.strides[axis], self.dilations[axis], self.pads_begin[axis], self.pads_end[axis]
        taken = d * (k - 1) + 1
        if self.op == "convolution":
            if taken > x + begin + end:
                raise InvalidProblemError(
                    f"spatial axis {axis}: the filter spans {taken} (kernel {k}, dilation {d}), more than the input {x} with pads {begin} and {end}"
                )
            natural = (begin + end + x - taken) // s + 1
            end = max((y - 1) * s + taken - begin - x, 0)
            if y == 1:
                s = begin + end + x - taken + 1
        else:
            natural = s * (x - 1) + taken - begin - end
            if end == 0:
                natural = max(natural, y)  # a longer output is padded with zeros at the end
            end = max(s * (x - 1) + taken - begin - y, 0)
            if x == 1:
                s = 1
        if natural != y:
            raise InvalidProblemError(f"spatial axis {axis}: out_spatial is {y}, but the other numbers give {natural}")
        return s, (1 if k == 1 else d), end

    @property
    def rank(self) -> int:
        """Number of spatial axes, 1 to 3."""
        return len(self.in_spatial)

    @property
    def types(self) -> Types:
        """Types of data, filter, sums and output."""
        return types_of(self.dtype)

    @property
    def is_quantized(self) -> bool:
        """Return whether data and filter are integers."""
        return is_integer(self.types.data)

    @property
    def data_shape(self) -> tuple[int, ...]:
        """Shape of `data` in `data_format`."""
        return self._activation_shape(self.in_channels, self.in_spatial)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the output in `data_format`."""
        return self._activation_shape(self.out_channels, self.out_spatial)

    def _activation_shape(self, channels: int, spatial: tuple[int, ...]) -> tuple[int, ...]:
        if self.data_format == "NXC":
            return (self.batch, *spatial, channels)
        return (self.batch, channels, *spatial)

    @property
    def filter_shape(self) -> tuple[int, ...]:
        """Shape of the filter in `filter_format`, named from the forward convolution (docs/semantics.md)."""
        if self.op == "convolution":
            outputs, inputs = self.out_channels, self.in_channels // self.groups
        else:
            outputs, inputs = self.in_channels, self.out_channels // self.groups
        if self.filter_format == "OIX":
            return (outputs, inputs, *self.kernel)
        return (*self.kernel, inputs, outputs)

    @property
    def output_padding(self) -> tuple[int, ...]:
        """Outputs of a transposed convolution along each spatial axis beyond those of its data, taps and pads."""
        sizes = zip(self.in_spatial, self.kernel, self.strides, self.dilations, strict=True)
        whole = (s * (x - 1) + d * (k - 1) + 1 for x, k, s, d in sizes)
        kept = zip(self.out_spatial, whole, self.pads_begin, self.pads_end, strict=True)
        return tuple(y - (w - begin - end) for y, w, begin, end in kept)

    @property
    def bias_shape(self) -> tuple[int]:
        """Shape of a bias."""
        return (self.out_channels,)

    @property
    def operands(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each input by its name, in the order of a kernel's arguments, which the output follows.

        `scale` and `slope`, one f32 number for each output channel, and `residual` are the epilogue's. With integers the
        residual is f32.
        """
        channels = (self.out_channels,)
        arrays = {
            "data": (self.data_shape, self.types.data),
            "filter": (self.filter_shape, self.types.filter),
            "bias": (channels, self.bias_dtype or self.dtype),
            "scale": (channels, "f32"),
            "slope": (channels, "f32"),
            "residual": (self.output_shape, "f32" if self.is_quantized else self.dtype),
        }
        taken = {"data", "filter", *(["bias"] if self.bias else [])}
        taken |= {OPERANDS[step.name] for step in self.epilogue if step.name in OPERANDS}
        return {name: array for name, array in arrays.items() if name in taken}

    @property
    def arrays(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Shape and type of each input, then of the output, by its name, in the order of a kernel's arguments."""
        return {**self.operands, "output": (self.output_shape, self.types.output)}

    @property
    def flops(self) -> int:
        """Arithmetic operations: a multiply and an add for each product, those with padding included."""
        if self.op == "convolution":
            return (
                2
                * self.batch
                * prod(self.out_spatial)
                * prod(self.kernel)
                * self.out_channels
                * (self.in_channels // self.groups)
            )
        return (
            2
            * self.batch
            * prod(self.in_spatial)
            * prod(self.kernel)
            * self.in_channels
            * (self.out_channels // self.groups)
        )

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and the output: the least that is read and written."""
        return sum(DTYPE_BYTES[dtype] * prod(shape) for shape, dtype in self.arrays.values())

    @property
    def filter_bytes(self) -> int:
        """Bytes of the filter."""
        return DTYPE_BYTES[self.types.filter] * prod(self.filter_shape)

    @property
    def products(self) -> int:
        """Products of an output's sum, at most."""
        if self.op == "convolution":
            return prod(self.kernel) * (self.in_channels // self.groups)
        # Of taps d apart, every s/gcd(s, d)-th meets an output.
        taps = prod(-(-k * gcd(s, d) // s) for k, s, d in zip(self.kernel, self.strides, self.dilations, strict=True))
        return taps * (self.in_channels // self.groups)

    @property
    def largest_sum(self) -> int:
        """The largest possible magnitude of a sum of integers; 0 for floating-point types."""
        return self.products * self._largest_product

    @property
    def largest_numbers(self) -> tuple[int, int]:
        """The largest magnitudes of integer data and filter minus their zero points; 0 for floating-point types."""
        return largest_numbers(self.types, self.zero_point, self.filter_zero_point)

    @property
    def _largest_product(self) -> int:
        return prod(self.largest_numbers)

    @property
    def is_empty(self) -> bool:
        """Return whether the output has no element (batch 0 or no output channel)."""
        return self.batch == 0 or self.out_channels == 0

    @property
    def is_constant(self) -> bool:
        """Return whether every sum is zero: no input channel, no tap, or taps that meet padding alone."""
        return self.in_channels == 0 or not all(map(self._meets_data, range(self.rank)))

    @property
    def is_depthwise(self) -> bool:
        """Return whether each of several groups has one input channel."""
        return self.groups > 1 and self.in_channels == self.groups

    def with_(self, **changes: object) -> Problem:
        """Return a copy with some fields changed (checked again)."""
        return replace(self, **changes)  # type: ignore[arg-type]

    def without_epilogue(self) -> Problem:
        """Return the problem of the sums alone."""
        dtype = f"{self.types.data}{self.types.filter}s32" if self.is_quantized else self.dtype
        return self.with_(bias=False, bias_dtype="", epilogue=(), dtype=dtype)

    def _meets_data(self, axis: int) -> bool:
        """Return whether some tap of some output along an axis meets data, not padding."""
        counts, limits = self.out_spatial, self.in_spatial
        if self.op != "convolution":
            counts, limits = limits, counts
        count, limit, stride = counts[axis], limits[axis], self.strides[axis]
        # Tap k meets 0 <= j*stride + start < limit for the j in 0 <= j < count.
        starts = (k * self.dilations[axis] - self.pads_begin[axis] for k in range(self.kernel[axis]))
        return any(max(0, -(start // stride)) < min(count, -((start - limit) // stride)) for start in starts)


def list_of(problems: object) -> list[Problem]:
    """Return a caller's problems as a list.

    Raises
    ------
    InvalidProblemError
        If `problems` is no sequence, or one of its items no Problem.
    """
    items = list(problems) if isinstance(problems, Iterable) and not isinstance(problems, str) else None
    for wrong in [problems] if items is None else [each for each in items if not isinstance(each, Problem)]:
        raise InvalidProblemError(
            f"problems {'is' if items is None else 'hold'} {wrong!r:.80}; give a list of Problems, which "
            "tvmconv.ops.convolution(...) and tvmconv.parse_signature(text) make"
        )
    return items or []
