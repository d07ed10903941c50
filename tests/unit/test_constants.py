"""Arrays of constants: read in place, and the same number for equal bytes."""

from __future__ import annotations

import numpy as np
import pytest

relax = pytest.importorskip("tvm.relax")

from tvmconv.network.ir.constants import DistinctArrays, constant  # noqa: E402


@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "int64", "uint8", "bfloat16"])
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 2)])
def test_constants_are_read_in_place(dtype: str, shape: tuple[int, ...]) -> None:
    given = np.ones(shape, "float32" if dtype == "bfloat16" else dtype)
    held = relax.const(given, dtype)
    array = constant(held)
    assert array is not None and array.shape == shape and array.dtype.name == dtype and np.all(array == 1)
    if dtype != "bfloat16":
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    del held
    assert np.all(array == 1)


def test_arrays_of_equal_bytes_have_one_number() -> None:
    arrays, zeros = DistinctArrays(), np.zeros((64, 64), np.float32)
    other = zeros.copy()
    other[63, 61] = 1  # where none of the bytes are that are compared first
    given = [zeros, other, zeros.copy(), zeros.T, zeros[:32], zeros.astype(np.float64)[:32], np.zeros(0), other + 0]
    assert [arrays.number(each) for each in given] == [0, 1, 0, 0, 2, 0, 3, 1]
