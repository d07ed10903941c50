"""Cumulative sums, products, extremes and logarithms of sums as tensor expressions: TVM's own call its runtime, or are missing.

Each round adds to every element the one 1, 2, 4 ... before it (Hillis and Steele), so rounds are ordinary loops. Rows are first
scanned in blocks, which are vectors. Along a free axis, whose number of rounds is unknown, elements are added one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from ..ir.free import dims_of
from ..schedule.reduce import combine_halves
from ..schedule.stages import KEPT

# Elements of a row that are scanned as one vector.
_BLOCK = 16


@dataclass(frozen=True)
class _Scan:
    """Cumulative sum or product: the function that combines two elements, and its neutral element."""

    combine: Callable[[Any, Any], Any]
    neutral: int
    name: str

    def legalize(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return the scan of a Relax operator's call, of f16 in f32, as PyTorch's: parts of sums and products overflow."""
        data, axis, dtype = call.args[0], call.attrs.axis, str(call.ty.dtype)
        if axis is None:
            data = builder.emit(relax.op.reshape(data, (-1,)))
        at = 0 if axis is None else int(axis) % data.ty.ndim
        scan = self._rounds if isinstance((dims_of(data.ty) or ())[at], int) else self._steps
        wide = "float32" if dtype == "float16" else dtype
        made = builder.call_te(scan, data, at, wide, bool(call.attrs.exclusive), primfunc_name_hint=self.name)
        return made if wide == dtype else builder.call_te(topi.cast, builder.emit(made), dtype)

    def _steps(self, data: te.Tensor, axis: int, dtype: str, exclusive: bool) -> te.Tensor:
        """Return the scan along an axis of free extent, one element after the other."""

        def written(inputs: Any, outputs: Any) -> Any:
            given, out = T.buffer_proxy(inputs[0]), T.buffer_proxy(outputs[0])

            def body(at: Any, before: Any, step: Any) -> None:
                added = given[before if exclusive else at].astype(dtype)
                first = tirx.const(self.neutral, dtype) if exclusive else added
                out[at] = tirx.if_then_else(step > 0, self.combine(out[before], added), first)

            return _one_by_one(data.shape, axis, body)

        return te.extern([data.shape], [data], written, dtype=dtype, name="scan")

    def _rounds(self, data: te.Tensor, axis: int, dtype: str, exclusive: bool) -> te.Tensor:
        """Return the scan by rounds, each with twice the reach of the round before; along long rows by blocks."""
        extent = int(data.shape[axis])
        total = te.compute(data.shape, lambda *at: data(*at).astype(dtype), "scan")
        if axis == len(data.shape) - 1 and extent > _BLOCK:
            return self._blocks(total, dtype, exclusive)
        if exclusive:
            total = te.compute(data.shape, partial(self._before, total, axis, 1), "scan")
        step = 1
        while step < extent:
            total = self._round(total, axis, step)
            step *= 2
        return total

    def _round(self, total: te.Tensor, axis: int, step: int) -> te.Tensor:
        """Return a round, which is stored before the next: inlined, it would be computed twice."""
        return te.compute(
            total.shape,
            lambda *at: self.combine(total(*at), self._before(total, axis, step, *at)),
            "scan",
            attrs={KEPT: 1},
        )

    def _before(self, tensor: te.Tensor, axis: int, step: int, *at: Any) -> Any:
        """Return the element `step` places before another along an axis; before the first, the neutral element."""
        there = tensor(*at[:axis], at[axis] - step, *at[axis + 1 :])
        return tirx.if_then_else(at[axis] >= step, there, tirx.const(self.neutral, tensor.dtype))

    def _blocks(self, data: te.Tensor, dtype: str, exclusive: bool) -> te.Tensor:
        """Return the scan along rows: within blocks, which are vectors, and of the blocks' totals."""
        outer, extent = tuple(data.shape)[:-1], int(data.shape[-1])
        blocks, none = -(-extent // _BLOCK), tirx.const(self.neutral, dtype)

        def element(*at: Any) -> Any:
            *row, block, lane = at
            terms = []
            for step in range(_BLOCK):
                place = block * _BLOCK + step
                there = data(*row, place)
                inside = there if extent % _BLOCK == 0 else tirx.if_then_else(place < extent, there, none)
                terms.append(tirx.Select(lane > step if exclusive else lane >= step, inside, none))
            return combine_halves(terms, self.combine)

        def whole(*at: Any) -> Any:
            *row, block = at
            last = inner(*row, block, _BLOCK - 1)
            if not exclusive:
                return last
            place = block * _BLOCK + _BLOCK - 1
            return self.combine(last, tirx.if_then_else(place < extent, data(*row, place), none))

        inner = te.compute((*outer, blocks, _BLOCK), element, "blocks", attrs={KEPT: 1})
        totals = te.compute((*outer, blocks), whole, "totals", attrs={KEPT: 1})
        before_blocks = self._rounds(totals, len(outer), dtype, True)

        def answer(*at: Any) -> Any:
            *row, place = at
            block = place // _BLOCK
            return self.combine(inner(*row, block, place % _BLOCK), before_blocks(*row, block))

        return te.compute(data.shape, answer, "scan")


def scan_extreme(builder: relax.BlockBuilder, data: relax.Expr, axis: int, above: bool) -> relax.Expr:
    """Return the running maximum or minimum along an axis, and its last index; after a NaN, both are the NaN's."""

    def scan(given: te.Tensor) -> Any:
        def written(inputs: Any, outputs: Any) -> Any:
            numbers, best, place = (T.buffer_proxy(each) for each in (*inputs, *outputs))

            def body(at: Any, before: Any, step: Any) -> None:
                now = numbers[at]
                taken = tirx.any(step == 0, now >= best[before] if above else now <= best[before])
                if "float" in str(given.dtype):
                    taken = tirx.any(taken, tirx.isnan(now))
                place[at] = tirx.if_then_else(taken, tirx.Cast("int64", step), place[before])
                best[at] = tirx.if_then_else(taken, now, best[before])

            return _one_by_one(given.shape, axis, body)

        return te.extern([given.shape] * 2, [given], written, dtype=[given.dtype, "int64"], name="scan")

    return builder.call_te(scan, data, primfunc_name_hint="cummax" if above else "cummin")


def scan_logarithm(builder: relax.BlockBuilder, data: relax.Expr, axis: int) -> relax.Expr:
    """Return the logarithm of the running sum of exponentials along an axis, in f32."""

    def scan(given: te.Tensor) -> te.Tensor:
        def written(inputs: Any, outputs: Any) -> Any:
            numbers, total = (T.buffer_proxy(each) for each in (*inputs, *outputs))

            def body(at: Any, before: Any, step: Any) -> None:
                most, least = tirx.max(total[before], numbers[at]), tirx.min(total[before], numbers[at])
                # The difference of two equal infinities is NaN.
                more = tirx.if_then_else(least == most, tirx.const(0, "float32"), least - most)
                both = most + tirx.log(1 + tirx.exp(more))
                unknown = tirx.any(tirx.isnan(total[before]), tirx.isnan(numbers[at]))
                both = tirx.if_then_else(unknown, total[before] + numbers[at], both)
                total[at] = tirx.if_then_else(step == 0, numbers[at], both)

            return _one_by_one(given.shape, axis, body)

        return te.extern([given.shape], [given], written, dtype="float32", name="scan")

    return builder.call_te(scan, data, primfunc_name_hint="logcumsumexp")


def _one_by_one(shape: Any, axis: int, body: Callable[[Any, Any, Any], None]) -> Any:
    """Return loops over rows, in parallel, and the steps of an axis; the body gets an element's place, its predecessor's, and the step."""
    rows, extent, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])
    with IRBuilder() as ir:
        with T.parallel(0, rows) as row, T.serial(0, extent) as step, T.serial(0, inner) as column:
            at = (row * extent + step) * inner + column
            body(at, tirx.if_then_else(step > 0, at - inner, at), step)
        return ir.get()


# Functions by the operators' names.
OPERATORS = {
    "relax.cumsum": _Scan(lambda x, y: x + y, 0, "cumsum").legalize,
    "relax.cumprod": _Scan(lambda x, y: x * y, 1, "cumprod").legalize,
}
