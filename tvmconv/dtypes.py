"""Element types by their names in a Problem: the one table from which all others are derived."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from .errors import missing_extra


@dataclass(frozen=True)
class Dtype:
    """A type of elements.

    Attributes
    ----------
    name
        Its name in a Problem.
    nbytes
        Bytes of an element.
    numpy
        NumPy's name; for bf16 that of ml_dtypes.
    dlpack
        DLPack's type code: 0 signed integers, 1 unsigned ones, 2 floating point, 4 bfloat.
    onnx
        ONNX's number (TensorProto.DataType).
    sums
        The type in which products are added.
    range
        The least and the greatest number of an integer type.
    c
        The C type of an element in exported headers, where NAME stands for the library's name.
    c_definition
        The typedef of `c` in these headers; empty: none is needed.
    kernel
        The type of CPU kernels' arrays, by NumPy's and TVM's name, if it is another: LLVM's code generation in TVM has no bf16, and
        NumPy exports none, so these kernels take its bits.
    exact
        For exact fills: the largest magnitude of data; that of the filter, for either operation; and the number of products of these
        that one output may sum exactly, for either operation. Their product is the integer up to which the type represents all:
        32*32*16384 = 2^24 in f32, 4*4*16 = 4*8*8 = 2^8 in bf16, 4*2*256 = 2^11 in f16.
    transform_error
        Relative L2 error allowed for transforms (Winograd), as in oneDNN's own tests.
    approximated_error
        Relative error of approximated steps in f32 (4e-7, and that of later steps), which narrower types may round to a neighbour.
    approximated_floor
        Absolute error allowed in any case: nothing is promised for denormal f32 numbers, and it is the distance of denormal f16 numbers.
    arrays
        Arrays that may have the type in a problem with integers: of "data", "filter" and "output".
    """

    name: str
    nbytes: int
    numpy: str
    dlpack: int
    onnx: int
    sums: str
    range: tuple[int, int] | None = None
    c: str = ""
    c_definition: str = ""
    kernel: str = ""
    exact: tuple[int, tuple[int, int], tuple[int, int]] = (0, (0, 0), (0, 0))
    transform_error: float = 0.0
    approximated_error: float = 0.0
    approximated_floor: float = 0.0
    arrays: tuple[str, ...] = ("output",)

    @property
    def in_kernels(self) -> str:
        """The type of CPU kernels' arrays, by NumPy's and TVM's name."""
        return self.kernel or self.numpy


_F16 = "typedef uint16_t NAME_f16;  /* IEEE 754 binary16, as bits */"
_BF16 = "typedef uint16_t NAME_bf16; /* the upper half of an IEEE 754 binary32, as bits */"
_ANY = ("data", "filter", "output")
ROWS: dict[str, Dtype] = {
    row.name: row
    for row in (
        Dtype("f32", 4, "float32", 2, 1, "f32", None, "float", "", "", (32, (32, 32), (16384, 16384)), 2e-5, 1e-6, 2.0**-126),
        Dtype("f16", 2, "float16", 2, 10, "f32", None, "NAME_f16", _F16, "", (4, (2, 2), (256, 256)), 7e-3, 2.0**-10, 2.0**-24),
        Dtype("bf16", 2, "bfloat16", 4, 16, "f32", None, "NAME_bf16", _BF16, "uint16", (4, (4, 8), (16, 8)), 6e-2, 2.0**-7, 2.0**-126),
        Dtype("u8", 1, "uint8", 1, 2, "s32", (0, 255), "uint8_t", arrays=_ANY),
        Dtype("s8", 1, "int8", 0, 3, "s32", (-128, 127), "int8_t", arrays=_ANY),
        # An 8-bit filter minus its zero points, which may differ by channel.
        Dtype("s16", 2, "int16", 0, 5, "s32", (-255, 255), "int16_t", arrays=("filter",)),
        Dtype("s32", 4, "int32", 0, 6, "s32", (-(2**31), 2**31 - 1), "int32_t"),
    )
}  # fmt: skip
# Types that data, filter, bias and output share in problems without integers.
FLOATS: tuple[str, ...] = tuple(name for name, row in ROWS.items() if row.range is None)
DTYPE_BYTES = {name: row.nbytes for name, row in ROWS.items()}


def is_integer(dtype: str) -> bool:
    """Return whether a type is an integer type."""
    return ROWS[dtype].range is not None


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a type; MissingExtraError for ``"bf16"`` where `ml_dtypes` is not installed."""
    if dtype != "bf16":
        return np.dtype(ROWS[dtype].numpy)
    try:
        import ml_dtypes
    except ImportError:
        raise missing_extra("compile", "ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


class Types(NamedTuple):
    """Types of a Problem's arrays, and of its sums."""

    data: str
    filter: str
    sum: str
    output: str


# Types of problems with integers: data, filter and output, such as u8s8u8.
QUANTIZED: tuple[str, ...] = tuple(
    map("".join, product(*([name for name, row in ROWS.items() if array in row.arrays] for array in _ANY)))
)
_TYPES = {name: Types(name, name, ROWS[name].sums, name) for name in FLOATS}
for _name in QUANTIZED:
    _data, _filter, _output = re.findall("[a-z]+[0-9]+", _name)
    _TYPES[_name] = Types(_data, _filter, ROWS[_data].sums, _output)


def types_of(dtype: str) -> Types:
    """Return the types of a Problem's arrays by its ``dtype``, such as ``"f32"`` or ``"u8s8u8"``."""
    return _TYPES[dtype]
