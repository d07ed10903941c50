"""Slices of tvmconv.torch: which part of a network is computed a few images at a time, and that its answer stays the same."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import fx, nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch import sliced, slices  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.fusion import fuse  # noqa: E402
from tvmconv.torch.plan import Plan, seen  # noqa: E402
from tvmconv.torch.segments import segments  # noqa: E402
from tvmconv.torch.slices import Cut, cut  # noqa: E402

F = nn.functional
Forward = Callable[[Any, Any], Any]
SHAPE = (4, 8, 16, 12)
IMAGE = 8 * 16 * 12 * 4  # bytes


class Model(nn.Module):
    """Convolutions, put together by a function."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(8, 8, 1) for _ in range(3))
        self.both, self.wide = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 21, padding=10)
        self.medium = nn.Conv2d(8, 8, 9, padding=4)
        self.norm, self.factor = nn.LayerNorm((16, 12)), nn.Parameter(torch.rand(8, 1, 1))
        self.function = [forward]

    def forward(self, x: Any) -> Any:
        return self.function[0](self, x)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let caches be so small that these networks are large."""
    monkeypatch.setattr(slices, "KEPT_BYTES", 0)
    monkeypatch.setattr(slices, "l3_bytes", lambda: 0)
    monkeypatch.setattr(slices, "SLICE_BYTES", 4 * IMAGE)
    torch.manual_seed(0)
    with torch.no_grad():
        yield


def _cut(forward: Forward, batch: int = 4) -> tuple[list[str], Cut | None]:
    """Return the names of the nodes of a model's only segment, and how it is cut."""
    data = torch.randn(batch, *SHAPE[1:])
    graph = fuse(Model(forward).eval(), [data], Notice(silent=True))
    (segment,) = segments(graph.graph, dict(graph.named_modules(remove_duplicate=False)))
    met: dict[Any, Any] = {}

    class Seeing(fx.Interpreter):
        def run_node(self, n: Any) -> Any:
            value = super().run_node(n)
            met[n] = seen(value)
            return value

    Seeing(graph).run(data)
    return [node.name for node in segment.nodes], cut(segment, dict(graph.named_modules()), met)


@pytest.mark.parametrize(
    "forward",
    [
        lambda m, x: m.c(m.b(m.a(x))),
        lambda m, x: m.c(F.max_pool2d(m.b(m.a(x)), 3, 1, 1)) + x,
        lambda m, x: m.both(torch.cat([m.a(x), m.b(x)], 1)),
        lambda m, x: m.both(torch.cat([m.a(x), m.b(x)], dim=-3)),
        lambda m, x: m.c(m.a(x) * torch.sigmoid(m.b(x).mean((2, 3), keepdim=True))),
        lambda m, x: m.c(m.a(x) * m.factor),
        lambda m, x: m.c(F.layer_norm(m.a(x).permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2)),
        lambda m, x: m.c(F.interpolate(m.a(x), scale_factor=2)),
        lambda m, x: (m.c(m.a(x)), m.b(x)),
    ],
)
def test_a_network_whose_images_do_not_meet_is_sliced_whole(forward: Forward) -> None:
    names, found = _cut(forward)
    assert found is not None
    assert (found.start, found.stop) == (0, len(names))


@pytest.mark.parametrize(
    ("forward", "stop"),
    [
        (lambda m, x: m.c(m.b(m.a(x)).mean(0, keepdim=True)), 2),
        (lambda m, x: m.c(torch.cat([m.b(m.a(x)), x])), 2),
        (lambda m, x: m.c(torch.cat([m.b(m.a(x)), x], -4)), 2),
        (lambda m, x: m.c(m.b(m.a(x)).permute(1, 0, 2, 3).reshape(4, 8, 16, 12)), 2),
        (lambda m, x: m.c(m.b(m.a(x)) * torch.ones(4, 1, 1, 1)), 2),
        (lambda m, x: m.c(F.pad(m.b(m.a(x)), (0, 0, 0, 0, 0, 0, 1, -1))), 2),
        (lambda m, x: m.c(m.b(m.a(x)) + m.a(x).mean()), 3),
        (lambda m, x: m.b(m.a(x)).mean((2, 3)), 4),
        # A shape is one of all images.
        (lambda m, x: m.c(F.layer_norm(m.a(x), x.shape[1:])), 1),
        # The filter of the last has more bytes than a few images.
        (lambda m, x: m.wide(m.b(m.a(x))), 2),
    ],
)
def test_slices_end_before_images_meet_and_before_large_filters(forward: Forward, stop: int) -> None:
    _, found = _cut(forward)
    assert found is not None
    assert (found.start, found.stop) == (0, stop)


def test_slices_begin_after_large_filters() -> None:
    _, found = _cut(lambda m, x: m.c(m.b(m.a(m.wide(x)))))
    assert found is not None
    assert (found.start, found.stop) == (1, 4)


def test_images_of_a_slice_fit_a_cache() -> None:
    chain = [_cut(lambda m, x: m.b(m.a(x)), batch)[1] for batch in (1, 2, 3, 5, 6, 8)]
    assert [None if each is None else each.images for each in chain] == [None, None, 1, 1, 2, 2]


def test_what_caches_keep_is_not_sliced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "KEPT_BYTES", 8 * IMAGE)
    assert _cut(lambda m, x: m.b(m.a(x)))[1] is None
    assert _cut(lambda m, x: m.b(m.a(x)), 8)[1] is not None


def test_a_third_level_cache_that_keeps_tensors_spares_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    # The filter, read three times more, has more bytes than four images and their outputs, but not four times as many.
    def medium(m: Any, x: Any) -> Any:
        return m.medium(m.b(m.a(x)))

    from_memory = _cut(medium)[1]
    monkeypatch.setattr(slices, "l3_bytes", lambda: 8 * IMAGE * slices.L3_PART)
    from_cache = _cut(medium)[1]
    assert from_memory is not None and from_cache is not None
    assert (from_memory.stop, from_cache.stop) == (3, 2)


def begins_and_ends_whole(m: Any, x: Any) -> Any:
    y = m.wide(x)
    z = m.c(m.b(m.a(y)) + y)
    return m.wide(m.both(torch.cat([m.c(z), z], 1))).mean((2, 3)), z


def has_other_outputs(m: Any, x: Any) -> Any:
    y = m.a(x)
    z = m.c(F.max_pool2d(m.b(y), 3, 1, 1)) + x
    return y, z, m.b(z).mean(0)


MODELS = (begins_and_ends_whole, has_other_outputs)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Return the plans that compute, one for each time."""
    made: list[Plan] = []
    compute = Plan.__call__

    def counting(plan: Plan, *args: Any) -> Any:
        made.append(plan)
        return compute(plan, *args)

    monkeypatch.setattr(Plan, "__call__", counting)
    return made


@pytest.mark.parametrize(("forward", "plans"), [(begins_and_ends_whole, 6), (has_other_outputs, 5)])
def test_slices_compute_what_the_whole_does(
    forward: Forward, plans: int, calls: list[Plan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(forward).eval()
    fast = tvmconv.torch.optimize(model, torch.randn(SHAPE), bundle=tmp_path / "bundle", progress=None)
    assert not any(row.why for row in tvmconv.torch.report(fast))
    inputs = [torch.randn(SHAPE) for _ in range(3)]
    inputs += [data.contiguous(memory_format=torch.channels_last) for data in inputs]
    # What a call returned stays as it is in later ones.
    given = [fast(data) for data in inputs]
    calls.clear()
    for data, answers in zip(inputs, given, strict=True):
        for one, other in zip(answers, model(data), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    fast(inputs[-1])
    assert len(calls) == plans
    monkeypatch.setattr(sliced, "MOST_THREADS", 0)
    calls.clear()
    for one, other in zip(fast(inputs[-1]), given[-1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
        assert one.stride() == other.stride()
    assert len(calls) == 1


def test_a_bundle_of_the_whole_batch_alone_serves_it_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = Model(lambda m, x: m.b(m.a(x))).eval(), torch.randn(4, 8, 17, 13)
    with monkeypatch.context() as patched:
        patched.setattr(slices, "KEPT_BYTES", 1 << 40)
        fast = tvmconv.torch.optimize(model, data, bundle=tmp_path / "bundle", progress=None)
    tvmconv.torch.open_bundle(tmp_path / "bundle")  # plans are made again
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(fast(data), model(data), rtol=1e-5, atol=1e-5)
    assert not any(row.why for row in tvmconv.torch.report(fast))
