"""Attention of a plan, one call of a C function, beside PyTorch's in f64; what is no attention stays several operators."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.operators import attention  # noqa: E402
from tvmconv.network.options import Options  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

Case = tuple[Callable[..., Any], tuple[Any, ...]]
INF = float("inf")


class Several(nn.Module):
    """Functions, each of tensors of its own, in one network."""

    def __init__(self, cases: Mapping[str, Case]) -> None:
        super().__init__()
        self.cases = list(cases.values())

    def forward(self, *given: Any) -> Any:
        left, made = list(given), []
        for compute, inputs in self.cases:
            made.append(compute(*left[: len(inputs)]))
            del left[: len(inputs)]
        return tuple(made)


def answers(cases: Mapping[str, Case], folder: Path, target: str = "host") -> tuple[dict[str, Any], list[str]]:
    """Return what a network gives for each case, and the functions that it calls."""
    given = tuple(each for _, inputs in cases.values() for each in inputs)
    program = torch.export.export(Several(cases).eval(), given, strict=False)
    build(read_torch(program), folder / "network.so", target)
    network = load_network(folder / "network.so")
    names = [each["name"] for each in network.description["inputs"]]
    bits = [each.view(torch.int16).numpy() if each.dtype == torch.bfloat16 else each.numpy() for each in given]
    typed = [
        each.view(np.dtype(tensor["dtype"])) if tensor["dtype"] == "bfloat16" else each
        for each, tensor in zip(bits, network.description["inputs"], strict=True)
    ]
    made = network(**dict(zip(names, typed, strict=True))).values()
    functions = [each["function"].rstrip("0123456789") for each in network.description["steps"]]
    return dict(zip(cases, made, strict=True)), functions


def check(cases: Mapping[str, Case], folder: Path, allowed: float = 3e-6, target: str = "host") -> list[str]:
    """Compare each case with PyTorch in f64, relative to the greatest number; return the functions that are called."""
    made, functions = answers(cases, folder, target)
    for name, (compute, inputs) in cases.items():
        right = compute(*(each.double() if each.is_floating_point() else each for each in inputs)).numpy()
        got = np.asarray(made[name], np.float64)
        assert got.shape == right.shape, name
        finite = np.isfinite(right)
        np.testing.assert_array_equal(got[~finite], right[~finite], name)
        error = np.abs(got[finite] - right[finite]).max(initial=0) / np.abs(right[finite]).max(initial=1e-30)
        assert error < allowed, (name, error)
    return functions


def r(*shape: int) -> Any:
    return torch.randn(shape)


def spelled(scale: float = 1.0, *, by_queries: bool = False, mask: Any = None) -> Callable[..., Any]:
    """Return attention by its formula."""

    def attend(q: Any, k: Any, v: Any, *more: Any) -> Any:
        scores = (q * scale) @ k.transpose(-1, -2) if by_queries else q @ k.transpose(-1, -2) * scale
        return (mask(scores, *more) if mask else scores).softmax(-1) @ v

    return attend


def heads(x: Any, count: int, width: int) -> tuple[Any, Any, Any]:
    """Return queries, keys and values of the output of one Linear."""
    batch, tokens, _ = x.shape
    return x.reshape(batch, tokens, 3, count, width).permute(2, 0, 3, 1, 4).unbind(0)


def together(x: Any) -> Any:
    return x.transpose(1, 2).flatten(2)


def by_channels(x: Any) -> Any:
    """Attention of channels by channels, as XCiT's."""
    q, k, v = (each.transpose(-1, -2) for each in heads(x, 2, 24))
    q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    made = (q @ k.transpose(-1, -2) * torch.tensor([[[0.5]], [[2.0]]], dtype=x.dtype)).softmax(-1) @ v
    return made.permute(0, 3, 1, 2).reshape(2, 30, 48)


def in_batches(x: Any) -> Any:
    """Heads are part of the batch, as those of nn.MultiheadAttention are."""
    q, k, v = (each.reshape(6, 33, 20) for each in heads(x, 3, 20))
    made = torch.bmm(torch.softmax(torch.bmm(q * 0.2, k.transpose(1, 2)), -1), v)
    return made.reshape(2, 3, 33, 20).transpose(1, 2).flatten(2)


def in_windows(x: Any, bias: Any, mask: Any) -> Any:
    """Windows of two images, one bias for each head and a mask for each window, as Swin's."""
    q, k, v = heads(x, 2, 32)
    scores = q @ k.transpose(-1, -2) + bias
    scores = scores.reshape(2, 3, 2, 49, 49) + mask[:, None]
    return together(scores.reshape(6, 2, 49, 49).softmax(-1) @ v)


def keys_first(q: Any, k: Any, v: Any) -> Any:
    """Scores lie with keys first, and so do values with their width, and the answer."""
    return v.transpose(-1, -2) @ (k @ q.transpose(-1, -2)).softmax(-2)


def test_shapes(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bias = r(2, 49, 49)
    cases: dict[str, Case] = {
        "tokens": (lambda x: together(F.scaled_dot_product_attention(*heads(x, 3, 64))), (r(2, 197, 576),)),
        "channels": (by_channels, (r(2, 30, 144),)),
        "batches": (in_batches, (r(2, 33, 180),)),
        "windows": (in_windows, (r(6, 49, 192), bias, r(3, 49, 49))),
        "windows of fixed bias": (lambda x, m: in_windows(x, bias.to(x.dtype), m), (r(6, 49, 192), r(3, 49, 49))),
        "keys first": (keys_first, (r(2, 17, 8), r(2, 100, 8), r(2, 100, 5))),
        "keys transposed": (lambda q, k, v: (q @ k).softmax(-1) @ v, (r(3, 40, 16), r(3, 16, 25), r(3, 25, 16))),
        "one head": (spelled(0.1), (r(30, 7), r(200, 7), r(200, 3))),
        "one query": (spelled(0.3, by_queries=True), (r(2, 3, 1, 20), r(2, 3, 99, 20), r(2, 3, 99, 33))),
        "two keys": (spelled(), (r(2, 3, 50, 4), r(2, 3, 2, 4), r(2, 3, 2, 40))),
        "queries of all": (spelled(), (r(1, 1, 9, 12), r(2, 3, 31, 12), r(2, 3, 31, 12))),
        "groups": (
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
            (r(2, 6, 12, 16), r(2, 2, 40, 16), r(2, 2, 40, 24)),
        ),
        "far rows": (lambda x: together(F.scaled_dot_product_attention(*heads(x, 16, 64))), (r(1, 20, 3072),)),
        "every second": (
            lambda q, k, v: spelled()(q, k[..., ::2], v[..., 1::3]),
            (r(2, 9, 8), r(2, 50, 16), r(2, 50, 9)),
        ),
    }
    functions = check(cases, tmp_path)
    assert functions.count("attention") == len(cases)
    assert not {"softmax", "matmul"} & set(functions)


def test_masks(tmp_path: Path) -> None:
    torch.manual_seed(1)
    q, k, v = r(2, 3, 20, 8), r(2, 3, 110, 8), r(2, 3, 110, 12)
    some = torch.rand(2, 1, 20, 110) > 0.4
    some[0, 0, 3] = False
    none = some.float().log()  # minus infinity where it is false
    ends = torch.arange(110) < torch.tensor([[70], [101]])
    fixed = torch.rand(3, 20, 110) > 0.2

    def chosen(fill: float) -> Callable[..., Any]:
        return spelled(0.3, mask=lambda scores, m: scores.masked_fill(m, fill))

    def attend(q: Any, k: Any, v: Any, m: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, m if m.dtype == torch.bool else m.to(q.dtype))

    cases: dict[str, Case] = {
        "added": (spelled(0.5, mask=lambda s, m: s + m), (q, k, v, r(20, 110))),
        "taken off": (spelled(0.5, mask=lambda s: s - fixed.to(s.dtype)), (q, k, v)),
        "rows of minus infinity": (spelled(mask=lambda s, m: s + m), (q, k, v, none)),
        "left out": (chosen(-INF), (q, k, v, some)),
        "far below": (chosen(-1e9), (q, k, v, some)),
        "as many as there are": (chosen(float(np.finfo(np.float32).min)), (q, k, v, some)),
        "by keys": (chosen(-INF), (q, k, v, ends[:, None, None])),
        "by queries": (spelled(mask=lambda s, m: s + m), (q, k, v, r(20, 1))),
        "fixed": (spelled(mask=lambda s: s.masked_fill(fixed, -INF)), (q, k, v)),
        "two": (spelled(mask=lambda s, m, n: (s + m).masked_fill(n, -INF)), (q, k, v, r(3, 20, 110), some)),
        "chosen and added": (spelled(mask=lambda s, m, n: torch.where(m, s, -5.0) + n), (q, k, v, some, r(20, 110))),
        "zero where empty": (attend, (q, k, v, some)),
        "zero where empty, added": (attend, (q, k, v, none)),
        "causal": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v)),
    }
    functions = check(cases, tmp_path)
    assert functions.count("attention") == len(cases)
    assert not {"softmax", "matmul"} & set(functions)


def test_what_is_not_finite_follows_the_formula(tmp_path: Path) -> None:
    """And of integers whose scores lie far apart, or are all the same, answers are exact."""
    torch.manual_seed(2)
    q, k, v = r(40, 8), r(120, 8), r(120, 8)
    queries, keys, values = q.clone(), k.clone(), v.clone()
    queries[3, 2], keys[:, 2] = torch.nan, keys[:, 2].abs() + 1
    queries[7, 2], queries[9, 2] = INF, -INF
    values[5, 1], values[6, 2] = torch.nan, INF
    numbers = torch.randint(-9, 10, (128, 20)).float()
    cases: dict[str, Case] = {
        "queries": (spelled(), (queries, keys, v)),
        "keys": (spelled(), (q, k.clone().index_fill_(0, torch.tensor([119]), torch.nan), v)),
        "values": (spelled(), (q, k, values)),
        "one": (spelled(200.0), (torch.eye(128)[:50], torch.eye(128), numbers)),
        "all": (spelled(), (torch.zeros(50, 16), r(128, 16), numbers)),
    }
    functions = check(cases, tmp_path)
    made, _ = answers(cases, tmp_path)
    np.testing.assert_array_equal(made["one"], numbers[:50])
    np.testing.assert_array_equal(made["all"], numbers.mean(0).broadcast_to(50, 20))
    assert functions.count("attention") == len(cases)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="of x86-64's vectors")
def test_narrower_vectors(tmp_path: Path) -> None:
    """Of AVX2, by which a tile has half the rows."""
    torch.manual_seed(6)
    cases: dict[str, Case] = {
        f"{queries}x{keys}x{width}": (spelled(0.3), (r(2, queries, width), r(2, keys, width), r(2, keys, width)))
        for queries, keys, width in ((49, 49, 32), (8, 200, 20), (9, 13, 3), (17, 97, 65), (3, 1000, 8))
    }
    assert check(cases, tmp_path, target="x86-64-v3").count("attention") == len(cases)


def test_random_problems(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    torch.manual_seed(3)
    cases: dict[str, Case] = {}
    for number in range(40):
        batch, count = (int(each) for each in rng.integers(1, 4, 2))
        queries, keys = (int(each) for each in rng.integers(2, 130, 2))
        depth, width = (int(each) for each in rng.integers(1, 70, 2))
        shapes = [(queries, depth), (keys, depth), (keys, width)]
        # Each with its axes in an order of its own.
        orders = [tuple(int(axis) for axis in rng.permutation(4)) for _ in shapes]
        given = [
            r(*[(batch, count, *shape)[axis] for axis in order]) for shape, order in zip(shapes, orders, strict=True)
        ]
        back = [np.argsort(order).tolist() for order in orders]
        end = [int(axis) for axis in rng.permutation(4)]

        def attend(*x: Any, back: Any = back, end: Any = end, scale: float = depth**-0.5) -> Any:
            q, k, v = (each.permute(order) for each, order in zip(x, back, strict=True))
            return spelled(scale)(q, k, v).permute(end)

        cases[f"{number}: {batch}x{count}, {shapes}, {orders}, {end}"] = (attend, tuple(given))
    functions = check(cases, tmp_path)
    assert functions.count("attention") == len(cases)


def test_bf16(tmp_path: Path) -> None:
    """Scores and shares are not rounded, so answers differ from the formula in f64 by the rounding of the answer alone."""
    torch.manual_seed(4)
    given = (r(2, 50, 3 * 3 * 20).bfloat16(),)
    bias = r(3, 50, 50).bfloat16()

    def attend(x: Any) -> Any:
        return together(spelled(0.25, mask=lambda s: s + bias.to(s.dtype))(*heads(x, 3, 20)))

    cases: dict[str, Case] = {
        "tokens": (lambda x: together(F.scaled_dot_product_attention(*heads(x, 3, 20), scale=0.25)), given),
        "biased": (attend, given),
    }
    functions = check(cases, tmp_path, 2.0**-8)
    assert functions.count("attention") == len(cases)


def test_what_stays_several_operators(tmp_path: Path) -> None:
    torch.manual_seed(5)
    q, k, v = r(2, 9, 8), r(2, 20, 8), r(2, 20, 6)

    def weighted(q: Any, k: Any, v: Any) -> Any:
        shares = (q @ k.transpose(-1, -2)).softmax(-1)
        return torch.cat([shares @ v, shares], -1)

    cases: dict[str, Case] = {
        "shares are read": (weighted, (q, k, v)),
        "other axis": (lambda q, k, v: (q @ k.transpose(-1, -2)).softmax(-2) @ v, (q, k, v)),
        "bounded scores": (spelled(mask=lambda s: s.clamp(-1, 1)), (q, k, v)),
        "scaled behind a mask": (spelled(mask=lambda s, m: (s + m) * 2), (q, k, v, r(9, 20))),
        "three masks": (spelled(mask=lambda s, m, n: s + m + n + m * n), (q, k, v, r(9, 20), r(2, 9, 20))),
        "half of the keys": (
            lambda q, k, v: (q @ k.transpose(-1, -2)).reshape(2, 9, 2, 10).softmax(-1).reshape(2, 9, 20) @ v,
            (q, k, v),
        ),
    }
    functions = check(cases, tmp_path)
    assert "attention" not in functions


def test_its_file_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[str, ...]] = []
    monkeypatch.setattr(attention, "compile_beside", lambda work: work())
    monkeypatch.setattr(attention, "compile_operators", lambda name, target, flags: given.append((name, *flags)))
    target = Options("host").cpu
    for compute, dtype in ((spelled(), None), (spelled(), "bf16"), (lambda q, k, v: q @ k.mT @ v, None)):
        program = torch.export.export(Several({"": (compute, (r(2, 5, 8),) * 3)}).eval(), (r(2, 5, 8),) * 3)
        attention.prepare_attention(read_torch(program), target, dtype)
    assert given == [("attention", "-DWHOLE_ALONE"), ("attention",)]


def test_free_extents(tmp_path: Path) -> None:
    """Batch, queries and keys of any number, axes in any order, masks beside them: one call for all sizes."""
    from torch.export import Dim

    rng = np.random.default_rng(7)
    free = {3: Dim("batch", min=2, max=9), 17: Dim("queries", min=2), 37: Dim("keys", min=2)}
    orders = [tuple(int(axis) for axis in rng.permutation(4)) for _ in range(4)]
    back = [np.argsort(order).tolist() for order in orders]
    masked = spelled(0.3, mask=lambda s, m, n: (s + m).masked_fill(n[:, None, None], -INF))

    def moved(*x: Any) -> Any:
        q, k, v = (each.permute(order) for each, order in zip(x, back[:3], strict=True))
        return spelled(0.25)(q, k, v).permute(orders[3])

    def kinds(batch: int, queries: int, keys: int) -> dict[str, Case]:
        shapes = [(batch, 2, queries, 12), (batch, 2, keys, 12), (batch, 2, keys, 5)]
        q, k, v = (r(*each) for each in shapes)
        ends = torch.arange(keys) > torch.arange(batch)[:, None]
        lying = [r(*(shape[axis] for axis in order)) for shape, order in zip(shapes, orders[:3], strict=True)]
        lines = r(batch, queries, 3 * 2 * 8)
        return {
            "tokens": (lambda x: together(F.scaled_dot_product_attention(*heads(x, 2, 8))), (lines,)),
            "masked": (masked, (q, k, v, r(queries, keys), ends)),
            "moved": (moved, tuple(lying)),
            "slices": (lambda q, k, v: spelled()(q[:, 1:], k[:, :1], v[:, -1:]), (q, k, v)),
            "of channels": (lambda x: keys_first(*heads(x, 2, 8)), (lines,)),
        }

    def given(*sizes: int) -> tuple[Any, ...]:
        torch.manual_seed(8)
        return tuple(each for _, inputs in kinds(*sizes).values() for each in inputs)

    module, example = Several(kinds(*free)).eval(), given(*free)
    shapes = tuple({axis: free[size] for axis, size in enumerate(each.shape) if size in free} for each in example)
    build(
        read_torch(torch.export.export(module, example, strict=False, dynamic_shapes=(shapes,))), tmp_path / "free.so"
    )
    network = load_network(tmp_path / "free.so")
    steps = [each["function"].rstrip("0123456789") for each in network.description["steps"]]
    assert steps.count("attention") == len(module.cases)
    assert not {"softmax", "matmul"} & set(steps)
    names = [each["name"] for each in network.description["inputs"]]
    for sizes in ((2, 2, 2), (3, 5, 200), (2, 97, 31)):
        of_size = given(*sizes)
        made = network(**{name: each.numpy() for name, each in zip(names, of_size, strict=True)})
        left = list(of_size)
        for (name, (compute, inputs)), found in zip(kinds(*sizes).items(), made.values(), strict=True):
            own = [left.pop(0) for _ in inputs]
            right = compute(*(each.double() if each.is_floating_point() else each for each in own)).numpy()
            assert np.abs(found - right).max() / np.abs(right).max() < 3e-6, (name, sizes)
