"""Products with weights of few bits and a scale for each block of a row (`com.microsoft` MatMulNBits), computed with dequantized weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from ...ir.constants import constant
from ..quantized import Array


def convert_blocks(builder: relax.BlockBuilder, inputs: list[Any], given: dict[str, Any]) -> relax.Expr:
    """Return the product of data and a matrix of integers of `bits` bits, with scales for blocks of `block_size` of its K rows.

    Raises
    ------
    ValueError
        If its weights are not fixed, or reordered.
    """
    data, *others = inputs[:6]
    packed, scales, zeros = (None if each is None else constant(each) for each in others[:3])
    if packed is None or scales is None or (others[2] is not None and zeros is None) or others[3] is not None:
        raise ValueError("its weights are not fixed, or reordered by g_idx")
    rows, depth, size, bits = (int(given[name]) for name in ("N", "K", "block_size", "bits"))
    blocks = -(-depth // size)
    integers = _unpack(packed.reshape(rows, -1), bits)[:, : blocks * size].reshape(rows, blocks, size)
    if zeros is None:
        zeros = np.full((rows, blocks), 2 ** (bits - 1))
    elif zeros.dtype == np.uint8:
        zeros = _unpack(zeros.reshape(rows, -1), bits)[:, :blocks]
    zeros, scales = (each.reshape(rows, blocks, 1).astype(np.float32) for each in (zeros, scales))
    matrix = ((integers - zeros) * scales).reshape(rows, -1)[:, :depth].T.astype(str(data.ty.dtype))
    made = relax.op.matmul(data, relax.const(np.ascontiguousarray(matrix)))
    return made if others[4] is None else relax.op.add(builder.emit(made), others[4])


def _unpack(rows: Array, bits: int) -> Array:
    """Return the numbers packed in rows of bytes, those of the low bits first, in f32."""
    each = np.unpackbits(rows, axis=1, bitorder="little").reshape(len(rows), -1, bits)
    return (each @ 2.0 ** np.arange(bits)).astype(np.float32)
