"""Where intermediate tensors lie, and that no operator of a segment returns memory that it read."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tvmconv.runtime.placing import Lifetime, place  # noqa: E402
from tvmconv.torch import operators  # noqa: E402
from tvmconv.torch.arena import Blocks  # noqa: E402
from tvmconv.torch.pads import Pad  # noqa: E402


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


def test_tensors_share_the_middle_of_a_slot() -> None:
    sizes = [1000, 64, 640, 128, 64]
    offsets, _ = place([Lifetime(size, step, step + 1) for step, size in enumerate(sizes)])
    for slot in (slice(0, None, 2), slice(1, None, 2)):
        middles = [offset + size / 2 for offset, size in zip(offsets[slot], sizes[slot], strict=True)]
        assert max(middles) - min(middles) < 64


def test_blocks_are_one_calls_at_a_time() -> None:
    blocks = Blocks()
    one, other = blocks.take(100), blocks.take(100)
    assert one is not other
    blocks.give(one)
    assert blocks.take(64) is one
    blocks.give(other)
    assert blocks.take(1000).size == 1000


# What an operator takes besides its first tensor, so that it has as little to do as can be, by how its name begins.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("add", "sub"), (0,)),
    **dict.fromkeys(("mul", "div", "truediv", "floordiv", "mod", "eq", "ne", "lt", "le", "gt", "ge"), (1,)),
    "interpolate": ((1, 1),),
    **dict.fromkeys(("avg_pool", "max_pool", "adaptive_avg_pool"), (1,)),
    "mean": ((2, 3),),
    "pow": (1,),
    **dict.fromkeys(("sum", "softmax", "log_softmax", "clamp"), (1,)),
    **dict.fromkeys(("maximum", "minimum"), (torch.ones(1),)),
    "addcmul": (torch.ones(1), torch.ones(1)),
    "masked_fill": (torch.zeros(1, dtype=torch.bool), 0),
    "repeat": (1, 1, 1, 1),
    "roll": (1, 1),
    "flip": ((1,),),
    **dict.fromkeys(("matmul", "bmm", "prelu"), (torch.ones(1, 1, 1),)),
    "scaled_dot_product_attention": (torch.ones(1, 1, 1), torch.ones(1, 1, 1)),
    "batch_norm": (torch.zeros(1), torch.ones(1)),
    "group_norm": (1,),
    "layer_norm": ((1,),),
    "pad": ((0, 0),),
}
# Those whose data have another rank than images.
RANKS = {**dict.fromkeys(("bmm", "matmul", "scaled_dot_product_attention"), 3), "prelu": 1}


@pytest.mark.parametrize("function", [*operators.FUNCTIONS, *operators.METHODS])
def test_no_operator_keeps_what_it_reads(function: Any) -> None:
    if isinstance(function, str):
        name, function = function, getattr(torch.Tensor, function)
    else:
        name = next((n for n in dir(nn.functional) if getattr(nn.functional, n) is function), function.__name__)
    spatial = next((int(digit) for digit in "123" if f"{digit}d" in name), 2)
    data = torch.ones((1,) * RANKS.get(name, 2 + spatial))
    others = ARGUMENTS.get(name.rstrip("123d") if "pool" in name else name, ())
    if name == "glu":  # it halves
        data = torch.ones(1, 2)
    given = ([data],) if name in ("cat", "stack") else (data, *others)
    if name == "prelu":
        given = (data, data)
    if name == "group_norm":  # a group of one number is refused
        given = (torch.ones(1, 1, 2), 1)
        data = given[0]
    assert function(*given).data_ptr() != data.data_ptr()


@pytest.mark.parametrize("kind", operators.MODULES)
def test_no_module_keeps_what_it_reads(kind: Any) -> None:
    name = kind.__name__
    rank = next((int(digit) for digit in "123" if name.endswith(f"{digit}d") and "Upsampling" not in name), 2)
    data = torch.ones(1, 1, *(1,) * rank)
    taken: tuple[Any, ...] = (
        (1,)
        if "Pool" in name
        or "BatchNorm" in name
        or "InstanceNorm" in name
        or name in ("LayerNorm", "Softmax", "Upsample")
        else ()
    )
    if kind is Pad:
        assert Pad("reflect")(data, (0,) * 2 * rank).data_ptr() != data.data_ptr()
        return
    if "Pad" in name:
        taken = (0, 0) if "Constant" in name else (0,)
    if name == "GLU" or "InstanceNorm" in name:  # it halves; a channel of one number is refused
        data = torch.ones(1, 1, *(2,) * rank)
    if name == "GroupNorm":  # a group of one number is refused
        taken, data = (1, 1), torch.ones(1, 1, 2)
    taken = (1,) if "Upsampling" in name else taken
    assert kind(*taken).eval()(data).data_ptr() != data.data_ptr()


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.add_(1),
        lambda x: nn.functional.relu(x, inplace=True),
        lambda x: nn.functional.batch_norm(x, torch.zeros(1), torch.ones(1), None, None, True),
        lambda x: nn.functional.dropout(x),
        lambda x: nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        lambda x: torch.add(x, 1, out=x),
        nn.ReLU(inplace=True),
        nn.BatchNorm2d(1),
        nn.Dropout(),
    ],
)
def test_what_has_an_effect_is_in_no_plan(forward: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.forwarded = forward

        def forward(self, x: Any) -> Any:
            return self.forwarded(x)

    traced = torch.fx.symbolic_trace(Model())
    modules = dict(traced.named_modules())
    assert not any(operators.has_no_effect(node, modules) for node in traced.graph.nodes)
