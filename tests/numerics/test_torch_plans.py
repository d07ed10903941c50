"""Plans of tvmconv.torch: what the layers compute one by one, bit for bit, whatever becomes of their intermediate tensors."""

from __future__ import annotations

import copy
import gc
import io
import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from planned_models import (  # noqa: E402
    MODELS,
    SHAPE,
    Forward,
    Model,
    activates,
    concatenates,
    has_views_that_live_longer,
    normalizes,
    pools_to_one_pixel,
    reads_late_what_it_adds,
    returns_an_intermediate,
    returns_views_of_views,
    returns_whole_views,
    scales_by_a_mean,
    shuffles_channels,
    splits,
    works_in_place,
)
from torch import fx, nn  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.torch.plan import Plan  # noqa: E402
from tvmconv.torch.segments import segments  # noqa: E402


class All(nn.Module):
    """All of them, which build their kernels together."""

    def __init__(self) -> None:
        super().__init__()
        self.models = nn.ModuleList(map(Model, MODELS))

    def forward(self, x: Any) -> Any:
        return [model(x) for model in self.models]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plans") / "bundle"
    examples = [torch.randn(SHAPE), torch.randn(3, *SHAPE[1:])]
    tvmconv.torch.optimize(All().eval(), examples, bundle=path, progress=None)
    return path


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Return the plans that compute, one for each time."""
    calls: list[Plan] = []
    compute = Plan.__call__

    def counting(plan: Plan, inputs: Any) -> Any:
        calls.append(plan)
        return compute(plan, inputs)

    monkeypatch.setattr(Plan, "__call__", counting)
    return calls


def _optimized(bundle: Path, forward: Forward = reads_late_what_it_adds) -> tuple[Any, Any]:
    """Return a model, and the same without plans."""
    fast = tvmconv.torch.optimize(Model(forward).eval(), torch.randn(SHAPE), bundle=bundle, progress=None)
    return fast, fx.GraphModule(fast, fast.graph)


def _leaves(answer: Any) -> list[Any]:
    return list(answer) if isinstance(answer, tuple) else [answer]


def _assert_equal(given: Any, expected: Any, error: float = 0.0) -> None:
    for one, other in zip(_leaves(given), _leaves(expected), strict=True):
        alike = torch.allclose(one, other, rtol=error, atol=error) if error else torch.equal(one, other)
        assert alike and one.shape == other.shape and one.stride() == other.stride()


@pytest.mark.parametrize("forward", MODELS)
def test_plans_compute_what_layers_do(forward: Forward, bundle: Path, planned: list[Plan]) -> None:
    fast, plain = _optimized(bundle, forward)
    planned.clear()
    inputs = [torch.randn(SHAPE) for _ in range(3)]
    inputs += [data.contiguous(memory_format=torch.channels_last) for data in inputs]
    given, expected = [], []
    for data in inputs:
        # What a call returned stays as it is in later ones.
        expected.append(plain(data.clone(memory_format=torch.preserve_format)))
        given.append(fast(data))
    for one, other in zip(given, expected, strict=True):
        # LayerNorm sums in another order than PyTorch's.
        _assert_equal(one, other, 1e-5 if forward is normalizes else 0.0)
    assert len(planned) >= 3


def _segments(fast: Any) -> list[tuple[int, int]]:
    """Return how many nodes and outputs each segment has."""
    found = segments(fast.graph, dict(fast.named_modules(remove_duplicate=False)))
    return [(len(segment.nodes), len(segment.outputs)) for segment in found]


@pytest.mark.parametrize(
    ("forward", "sizes"),
    [
        (returns_an_intermediate, [(3, 2)]),
        (works_in_place, [(3, 2)]),
        (reads_late_what_it_adds, [(5, 1)]),
        (concatenates, [(6, 1)]),
        (scales_by_a_mean, [(7, 1)]),
        (pools_to_one_pixel, [(9, 2)]),
        (splits, [(9, 1)]),
        (shuffles_channels, [(11, 1)]),
        (normalizes, [(11, 1)]),
        (has_views_that_live_longer, [(17, 2)]),
        (returns_views_of_views, [(8, 3)]),
    ],
)
def test_what_is_planned(forward: Forward, sizes: list[tuple[int, int]], bundle: Path) -> None:
    assert _segments(_optimized(bundle, forward)[0]) == sizes


def test_memory_is_used_again(bundle: Path, planned: list[Plan]) -> None:
    fast, _ = _optimized(bundle, lambda m, x: m.a(m.c(m.b(m.a(m.c(m.b(m.a(x))))))))
    data = torch.randn(SHAPE)
    fast(data)
    fast(data)
    one = data.numel() * 4
    assert planned[-1].size < 2 * one + 2 * 64


def test_whole_views_of_outputs_are_no_steps(bundle: Path, planned: list[Plan]) -> None:
    fast, _ = _optimized(bundle, returns_whole_views)
    data = torch.randn(SHAPE).contiguous(memory_format=torch.channels_last)
    one, other = (fast(data)[0] for _ in range(2))
    assert one.data_ptr() != other.data_ptr()
    with torch.device("meta"):  # where new tensors would be, of whom nobody says where
        _assert_equal(fast(data)[0], one)
    (bound,) = planned[-1]._bound.values()
    assert len(bound._steps) == 6  # four layers, a part of one and a copy


def test_products_are_written_over_what_they_read(bundle: Path, planned: list[Plan]) -> None:
    def forward(m: Any, x: Any) -> Any:
        y = m.b(m.a(x))
        return m.c(torch.sigmoid(y * m.a(y)) + 1)

    fast, _ = _optimized(bundle, forward)
    data = torch.randn(SHAPE)
    for _ in range(2):
        fast(data)
    assert planned[-1].size == 2 * data.numel() * 4


def test_activations_take_memory_of_the_plan(bundle: Path, planned: list[Plan]) -> None:
    fast, plain = _optimized(bundle, activates)
    data = torch.randn(SHAPE)
    for _ in range(2):
        fast(data)
    plan = planned[-1]
    elsewhere = {node.name for node in plan.segment.nodes if node not in plan.offsets}
    assert elsewhere == {plan.segment.outputs[0].name}  # the caller's
    fast.leaky.negative_slope = plain.leaky.negative_slope = 0.1
    _assert_equal(fast(data), plain(data))


def test_another_batch_has_a_plan_of_its_own(bundle: Path, planned: list[Plan]) -> None:
    fast, plain = _optimized(bundle)
    for batch in (3, 1, 3, 1):
        data = torch.randn(batch, *SHAPE[1:])
        _assert_equal(fast(data), plain(data))
    assert len({id(plan) for plan in planned}) == 2


def test_what_no_kernel_computes_is_torchs(bundle: Path) -> None:
    fast, plain = _optimized(bundle)
    data = torch.randn(1, 8, 7, 7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(2):
            _assert_equal(fast(data), plain(data))
        stacked = torch.randn(2, *SHAPE)
        torch.testing.assert_close(torch.func.vmap(fast)(stacked)[1], plain(stacked[1]), rtol=1e-5, atol=1e-5)
        for _ in range(2):
            _assert_equal(fast(stacked[1]), plain(stacked[1]))


def test_what_is_added_to_all_images(bundle: Path) -> None:
    class Placed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.again, self.place = (
                nn.Conv2d(3, 8, 1),
                nn.Conv2d(8, 8, 1),
                nn.Parameter(torch.randn(1, 8, 4, 4)),
            )

        def forward(self, x: Any) -> Any:
            return self.again((self.conv(x) + self.place).relu())

    network, data = Placed().eval(), torch.randn(2, 3, 4, 4)
    fast = tvmconv.torch.optimize(network, [data[:1], data], bundle=bundle, progress=None)
    for given in (data, data[:1], data):
        torch.testing.assert_close(fast(given), network(given), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(
        fast.conv(data, residual=fast.place), (network.conv(data) + network.place).relu(), rtol=1e-5, atol=1e-5
    )
    rows = tvmconv.torch.report(fast)
    assert not any(row.why for row in rows) and "conv2d-add-relu" in {row.computes for row in rows}


def test_weights_may_change(bundle: Path, planned: list[Plan]) -> None:
    fast, plain = _optimized(bundle)
    data = torch.randn(SHAPE)
    before = fast(data)
    changed = {name: 2 * value for name, value in fast.state_dict().items()}
    fast.load_state_dict(changed)
    for _ in range(2):
        _assert_equal(fast(data), plain(data))
    fast.load_state_dict({name: 3 * value for name, value in changed.items()}, assign=True)
    fast.both.bias = None
    planned.clear()
    for _ in range(2):
        _assert_equal(fast(data), fx.GraphModule(fast, fast.graph)(data))
    assert not torch.equal(fast(data), before) and planned


def test_modules_and_the_graph_may_change(bundle: Path) -> None:
    fast, _ = _optimized(bundle)
    data = torch.randn(SHAPE)
    fast(data)
    fast.b = copy.deepcopy(fast.a)
    for _ in range(2):
        _assert_equal(fast(data), fx.GraphModule(fast, fast.graph)(data))
    (output,) = (node for node in fast.graph.nodes if node.op == "output")
    first = next(node for node in fast.graph.nodes if node.op == "call_module")
    output.args = ((output.args[0], first),)
    fast.recompile()
    given = [fast(data) for _ in range(3)]
    for each in given:
        _assert_equal(each, fx.GraphModule(fast, fast.graph)(data))


def test_hooks_see_what_stays(bundle: Path, planned: list[Plan]) -> None:
    fast, plain = _optimized(bundle)
    data = torch.randn(SHAPE)
    fast(data)
    planned.clear()
    seen: list[Any] = []
    handle = fast.a.register_forward_hook(lambda module, args, output: seen.append(output))
    for factor in (1, 2, 3):
        fast(factor * data)
    assert not torch.equal(seen[0], seen[1]) and not planned
    handle.remove()
    _assert_equal(fast(data), plain(data))


def test_copies_and_files_are_planned(bundle: Path, planned: list[Plan]) -> None:
    fast, plain = _optimized(bundle)
    fast.labels = ["cat", "dog"]
    data = torch.randn(SHAPE)
    saved = io.BytesIO()
    torch.save(fast, saved)
    saved.seek(0)
    for other in (copy.deepcopy(fast), torch.load(saved, weights_only=False)):
        planned.clear()
        for _ in range(2):
            _assert_equal(other(data), plain(data))
        assert len(planned) == 1
    assert other.labels == fast.labels


def test_nothing_keeps_a_model(bundle: Path) -> None:
    fast, plain = _optimized(bundle, concatenates)
    for _ in range(2):
        fast(torch.randn(SHAPE))
    watched = weakref.ref(fast.a)
    del fast, plain
    gc.collect()
    assert watched() is None


def test_threads_share_nothing(bundle: Path) -> None:
    fast, plain = _optimized(bundle)
    inputs = [torch.randn(1 + 2 * (number % 2), *SHAPE[1:]) for number in range(4)]
    expected, wrong = [plain(data) for data in inputs], []

    def work(data: Any, answer: Any) -> None:
        with torch.no_grad():
            given = [fast(data) for _ in range(40)]
        if not all(torch.equal(each, answer) for each in given):
            wrong.append(1)

    threads = [threading.Thread(target=work, args=each) for each in zip(inputs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_gradients_modes_and_tracing(bundle: Path) -> None:
    fast, plain = _optimized(bundle)
    data = torch.randn(SHAPE)
    with torch.inference_mode():
        _assert_equal(fast(data), plain(data))
        fast(data)
    _assert_equal(fast(data), plain(data))
    with torch.enable_grad():
        fast(data).sum()  # nothing needs any
        asked = data.clone().requires_grad_()
        fast(asked).sum().backward()
        assert asked.grad is not None
    with torch.autocast("cpu", torch.bfloat16):
        assert fast(data).dtype == torch.bfloat16
    exported = torch.export.export(fast, (data,))
    assert "tvmconv.convolution" in str(exported.graph)
    _assert_equal(exported.module()(data), plain(data))
