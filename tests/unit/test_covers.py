"""Covers of outputs by blocks: Python's estimates at compilation equal C's at calls."""

from __future__ import annotations

import ctypes
import random
import subprocess
from pathlib import Path

import pytest

from tvmconv.lowering.cpu.cover import Cost, Covers, Reach
from tvmconv.lowering.cpu.linker import compile_runtime

AXES = 3
Row = ctypes.c_int64 * AXES


class Block(ctypes.Structure):
    """``Block`` of `native/family.h`."""

    _fields_ = (
        ("function", ctypes.c_void_p), ("outputs", Row), ("inputs", Row), ("data_in_image", ctypes.c_int),
        ("output_in_image", ctypes.c_int), ("by_taps", ctypes.c_int), ("cost", ctypes.c_double), ("sum_cost", ctypes.c_double),
        ("copy_cost", ctypes.c_double), ("layout", ctypes.c_int),
    )  # fmt: skip


class Family(ctypes.Structure):
    """``Family`` of `native/family.h`, as far as covers read it."""

    _fields_ = (
        ("rank", ctypes.c_int), ("channels_last", ctypes.c_int), ("transposed", ctypes.c_int), ("flat", ctypes.c_int), ("zero", ctypes.c_int),
        ("strides", Row), ("spans", Row), ("taps", Row), ("dilations", Row), ("pads", Row), ("operands", ctypes.c_int), ("residual", ctypes.c_int),
        ("blocks", ctypes.c_int), ("block", ctypes.POINTER(Block)), ("layouts", ctypes.c_int), ("layout", ctypes.c_void_p),
        ("packed", ctypes.c_int64), ("packed_type", ctypes.c_int32),
    )  # fmt: skip


@pytest.fixture(scope="module")
def cost_of_cover(tmp_path_factory: pytest.TempPathFactory):
    """Return the function of `covers.c`."""
    folder = tmp_path_factory.mktemp("covers")
    (folder / "covers.o").write_bytes(compile_runtime(Path(__file__).with_name("covers.c")))
    subprocess.run(["cc", "-shared", "covers.o", "-o", "covers.so"], check=True, cwd=folder)
    found = ctypes.CDLL(str(folder / "covers.so")).cost_of_cover
    found.restype = ctypes.c_double
    return found


@pytest.mark.parametrize("seed", range(40))
def test_both_choose_covers_of_one_cost(cost_of_cover, seed: int) -> None:
    rng = random.Random(seed)
    rank = rng.randint(1, AXES)
    strides, taps, dilations = (
        [rng.choice(each) for _ in range(rank)] for each in ((1, 1, 2, 3), (1, 2, 3, 5), (1, 2, 4))
    )
    spans = [d * (k - 1) + 1 for k, d in zip(taps, dilations, strict=True)]
    begin, end = ([rng.randrange(span) for span in spans] for _ in range(2))
    outputs = [
        tuple(
            max(rng.randint(1, 9), (b + e - span) // s + 2)
            for b, e, span, s in zip(begin, end, spans, strides, strict=True)
        )
        for _ in range(6)
    ]
    costs = [
        Cost(
            tuple(rng.randint(1, 5) for _ in range(rank)),
            rng.randint(1, 9),
            rng.choice((0, rng.randint(1, 99))),
            rng.randint(0, 9),
        )
        for _ in range(rng.randint(1, 8))
    ]
    reach = Reach(*map(tuple, (strides, taps, dilations, begin, end)))
    blocks = (Block * len(costs))(
        *(
            Block(
                outputs=Row(*each.outputs),
                by_taps=each.sums > 0,
                cost=each.call,
                sum_cost=each.sums,
                copy_cost=each.copy,
            )
            for each in costs
        )
    )
    family = Family(
        rank=rank, strides=Row(*strides), spans=Row(*spans), taps=Row(*taps), dilations=Row(*dilations), blocks=len(costs), block=blocks,
    )  # fmt: skip
    estimates = Covers(costs, outputs, reach).cycles(range(len(costs)))
    for sizes, estimate in zip(outputs, estimates, strict=True):
        axes = zip(sizes, strides, spans, begin, end, strict=True)
        extents = [(y - 1) * s + span - b - e for y, s, span, b, e in axes]
        assert min(extents) > 0
        first = Row(*(-each for each in begin))
        found = cost_of_cover(ctypes.byref(family), Row(*sizes), Row(*extents), first)
        assert found == pytest.approx(estimate, rel=1e-9)  # tolerance: sums of doubles in another order
