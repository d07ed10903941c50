"""Where intermediate tensors lie, and that no operator of a segment returns memory that it read."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tvmconv.torch import segments  # noqa: E402
from tvmconv.torch.arena import Blocks, Lifetime, place  # noqa: E402


def test_none_overlap_that_live_at_the_same_time() -> None:
    draw = random.Random(0)
    for _ in range(200):
        firsts = sorted(draw.randrange(20) for _ in range(draw.randrange(12)))
        lives = [Lifetime(draw.randrange(300), first, first + draw.randrange(6)) for first in firsts]
        offsets, size = place(lives)
        at_once = max((sum(-(-each.size // 64) * 64 for each in lives if each.first <= t <= each.last) for t in range(26)), default=0)  # fmt: skip
        assert size >= at_once
        spans = list(zip(offsets, lives, strict=True))
        for number, (begin, one) in enumerate(spans):
            assert begin % 64 == 0 and begin + one.size <= size
            for other_begin, other in spans[:number]:
                if other.last >= one.first and one.last >= other.first:
                    assert begin + one.size <= other_begin or other_begin + other.size <= begin


def test_a_chain_needs_the_memory_of_two() -> None:
    assert place([Lifetime(64, step, step + 1) for step in range(9)]) == ([0, 64] * 4 + [0], 128)


def test_blocks_are_one_calls_at_a_time() -> None:
    blocks = Blocks()
    one, other = blocks.take(100), blocks.take(100)
    assert one is not other
    blocks.give(one)
    assert blocks.take(64) is one
    blocks.give(other)
    assert blocks.take(1000).size == 1000


# What each operator takes besides its first tensor, so that it has as little to do as can be.
ARGUMENTS: dict[Any, tuple[Any, ...]] = {
    **dict.fromkeys(("add", "sub"), (0,)),
    **dict.fromkeys(("mul", "div", "truediv"), (1,)),
    **dict.fromkeys(("interpolate",), ((1, 1),)),
    **dict.fromkeys(("avg_pool", "max_pool"), (1,)),
    **dict.fromkeys(("adaptive_avg_pool",), (1,)),
}


def _arguments(name: str) -> tuple[Any, ...]:
    return ARGUMENTS.get(name.rstrip("123d") if "pool" in name else name, ())


@pytest.mark.parametrize("function", [*segments._FUNCTIONS, *segments._METHODS])
def test_no_operator_keeps_what_it_reads(function: Any) -> None:
    if isinstance(function, str):
        name, function = function, getattr(torch.Tensor, function)
    else:
        name = next((n for n in dir(nn.functional) if getattr(nn.functional, n) is function), function.__name__)
    rank = next((int(digit) for digit in "123" if f"{digit}d" in name), 2)
    data = torch.ones(1, 1, *(1,) * rank)
    given = ([data],) if name == "cat" else (data, *_arguments(name))
    if name == "mean":
        given = (data, (2, 3))
    assert function(*given).data_ptr() != data.data_ptr()


@pytest.mark.parametrize("kind", segments._MODULES)
def test_no_module_keeps_what_it_reads(kind: Any) -> None:
    name = kind.__name__
    rank = next((int(digit) for digit in "123" if name.endswith(f"{digit}d")), 2)
    data = torch.ones(1, 1, *(1,) * rank)
    assert kind(*((1,) if "Pool" in name else ()))(data).data_ptr() != data.data_ptr()
