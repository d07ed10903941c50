"""tvmconv.torch reads models whose code writes their own weights in each call, the same ones: re-parameterised networks do."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import SourceError  # noqa: E402
from tvmconv.torch.exporting import export  # noqa: E402
from tvmconv.torch.flat import Flat  # noqa: E402
from tvmconv.torch.rewritten import may_write  # noqa: E402

Forward = Callable[[Any, Any], Any]


class Branches(nn.Module):
    """Two convolutions, and what they are together; `forward` is a test's."""

    def __init__(self, way: Forward) -> None:
        super().__init__()
        self.one, self.other = nn.Conv2d(4, 8, 1), nn.Conv2d(8, 4, 3, padding=1)
        self.both = nn.Conv2d(4, 4, 3, padding=1)
        self.register_buffer("kernel", torch.zeros(4, 4, 3, 3))
        self.register_buffer("u", F.normalize(torch.ones(4), dim=0))
        self.kept: Any = None
        self.count = 0
        self.way = way

    def made(self) -> tuple[Any, Any]:
        """Return the filter and the bias of both."""
        filter_ = torch.einsum("omij,mckl->ocij", self.other.weight, self.one.weight)
        return filter_, self.other.bias + self.other.weight.sum((2, 3)) @ self.one.bias

    def forward(self, x: Any) -> Any:
        return self.way(self, x)


def data(m: Any, x: Any) -> Any:
    m.both.weight.data, m.both.bias.data = (each.detach() for each in m.made())
    return m.both(x)


def data_of_data(m: Any, x: Any) -> Any:
    """Write as SPAN does, by an attribute."""
    w, b = m.other.weight.data.clone().detach(), m.one.weight.data.clone().detach()
    m.kept = F.conv2d(b.flip(2, 3).permute(1, 0, 2, 3), w, padding=2, stride=1).flip(2, 3).permute(1, 0, 2, 3)
    m.both.weight.data, m.both.bias.data = m.kept, m.made()[1]
    return m.both(x)


def copied(m: Any, x: Any) -> Any:
    for tensor, value in zip((m.both.weight, m.both.bias), m.made(), strict=True):
        tensor.data.copy_(value)
    return m.both(x)


@torch.no_grad()
def copied_without_gradients(m: Any, x: Any) -> Any:
    m.both.weight.copy_(m.made()[0])
    return m.both(x)


def sliced(m: Any, x: Any) -> Any:
    w, _ = m.made()
    m.both.weight.data[:2] = w[:2]
    m.both.weight.data[2:] = w[2:]
    return m.both(x)


def loaded(m: Any, x: Any) -> Any:
    m.both.load_state_dict(dict(zip(("weight", "bias"), m.made(), strict=True)))
    return m.both(x)


def parameter(m: Any, x: Any) -> Any:
    m.both.weight = nn.Parameter(m.made()[0].detach())
    return m.both(x)


def by_name(m: Any, x: Any) -> Any:
    m.both._parameters["weight"] = nn.Parameter(m.made()[0].detach())
    return m.both(x)


def buffer(m: Any, x: Any) -> Any:
    m.kernel = m.made()[0]
    return F.conv2d(x, m.kernel, padding=1)


def buffer_in_place(m: Any, x: Any) -> Any:
    m.kernel.zero_()
    m.kernel.add_(m.made()[0])
    return F.conv2d(x, m.kernel, padding=1)


def attribute(m: Any, x: Any) -> Any:
    m.kept = m.made()
    return F.conv2d(x, *m.kept, padding=1)


def once(m: Any, x: Any) -> Any:
    if m.kept is None:
        m.kept = m.made()[0].detach()
    return F.conv2d(x, m.kept, padding=1)


def new_layer(m: Any, x: Any) -> Any:
    m.kept = nn.Conv2d(4, 4, 3, padding=1)
    m.kept.weight.data, m.kept.bias.data = m.made()
    return m.kept(x)


def bounded(m: Any, x: Any) -> Any:
    m.both.weight.data.clamp_(-0.1, 0.1)
    return m.both(x)


def spectral(m: Any, x: Any) -> Any:
    w = m.both.weight.flatten(1)
    with torch.no_grad():
        v = F.normalize(w.t() @ m.u, dim=0)
    m.kept = m.both.weight / (m.u @ (w @ v))
    return F.conv2d(x, m.kept, padding=1)


WAYS = [data, data_of_data, copied, copied_without_gradients, sliced, loaded, parameter, by_name, buffer, buffer_in_place,
        attribute, once, new_layer, bounded, spectral]  # fmt: skip


def standardized(m: Any, x: Any) -> Any:
    w = m.both.weight
    m.both.weight.data = (w - w.mean((1, 2, 3), keepdim=True)) / torch.sqrt(w.var((1, 2, 3), keepdim=True) + 1e-5)
    return m.both(x)


def chain(*ways: Forward) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(part for way in ways for part in (Branches(way), nn.Tanh()))).eval()


def answer(flat: Flat, program: Any, x: Any) -> Any:
    """Return what a program of a model gives."""
    (made,) = program.module()(x)
    (order,) = flat.structure().out_orders
    return made.permute(sorted(range(4), key=order.__getitem__))


@pytest.mark.parametrize("calls", [0, 1])
def test_each_way_is_read_and_leaves_the_model(calls: int) -> None:
    model, x = chain(*WAYS), torch.randn(1, 4, 6, 6)
    for _ in range(calls):
        model(x)
    before = copy.deepcopy(model.state_dict())
    flat = Flat(model, (x,), {})
    program = export(flat)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    with torch.no_grad():
        for each in (x, torch.randn_like(x)):
            assert_near(answer(flat, program, each), model(each), summed=1000, layers=4)


def by_mean(m: Any, x: Any) -> Any:
    m.both.weight.data = m.other.weight.detach()[:, :4] * x.mean()
    return m.both(x)


def moving(m: Any, x: Any) -> Any:
    m.both.bias.data.mul_(0.9).add_(x.mean())
    return m.both(x)


def moving_buffer(m: Any, x: Any) -> Any:
    m.kernel = m.kernel * 0.9 + x.mean()
    return F.conv2d(x, m.kernel)


def most(m: Any, x: Any) -> Any:
    m.u.copy_(torch.maximum(m.u, x.max()))
    return m.both(x) / m.u[0]


def halved(m: Any, x: Any) -> Any:
    y = m.both(x)
    m.both.weight.data = m.both.weight * 0.5
    return y


def counted(m: Any, x: Any) -> Any:
    m.count += 1
    return m.both(x) * m.count


def grown(m: Any, x: Any) -> Any:
    m.both.weight.data = torch.zeros(4, 4, 1, 1)
    return m.both(x)


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (by_mean, r"the model changes both.weight in each call \(File .*test_torch_rewritten_weights.py.*in forward"),
        (moving, r"the model changes both.bias in each call \(File .*in forward"),
        (moving_buffer, "the model changes kernel in each call, and its next answer"),
        (most, r"the model changes u in each call \(File .*in forward"),
        (halved, "the model changes both.weight in each call, and its next answer"),
        (counted, "the model changes count in each call, and its next answer"),
        (standardized, "the model changes both.weight in each call, and its next answer"),
        (grown, r"a tensor of \[4, 4, 3, 3\].* to one of \[4, 4, 1, 1\].*; call the model once before.*in grown"),
    ],
)
def test_what_is_another_in_each_call_is_refused(way: Forward, message: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(SourceError, match=message):
        export(Flat(Branches(way).eval(), (torch.randn(1, 4, 6, 6),), {}))


@torch.no_grad()
def test_a_call_that_pytorch_computes_and_sources_that_change() -> None:
    model, x, other = (
        chain(data_of_data, new_layer, parameter, standardized),
        torch.randn(1, 4, 6, 6),
        torch.randn(1, 4, 5, 5),
    )
    fast = tvmconv.torch.optimize(model, x, progress=None)
    report = tvmconv.torch.report(fast)
    assert report.refused == {} and not [row for row in report if row.why]
    close = torch.testing.assert_close
    close(fast(x), model(x), rtol=1e-3, atol=1e-4)  # tolerance: each call standardizes its weights once more
    network = tvmconv.torch.networks(fast)[0]
    with pytest.warns(tvmconv.errors.TvmconvWarning, match="not compiled for 1x4x5x5"):
        assert_near(fast(other), model(other), summed=1000, layers=4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(x)
    assert tvmconv.torch.networks(fast)[0] is network
    assert not any("other values" in why for why in vars(fast)["forward"].__self__.refused)
    for each in (model, fast):
        each[0].other.weight.mul_(-2)
    assert_near(fast(x), model(x), summed=1000, layers=4)
    assert any("other values" in why for why in vars(fast)["forward"].__self__.refused)


@torch.no_grad()
def test_a_whole_model_as_a_library() -> None:
    """`torch.export` leaves out what is written to `data`, and the library would compute with the weights before."""
    model, x = chain(data, new_layer), torch.randn(1, 4, 6, 6)
    fast = tvmconv.torch.compile(model, x, progress=None)
    for each in (x, torch.randn_like(x)):
        assert_near(fast(each), model(each), summed=1000, layers=8)


def test_programs_that_may_write_are_known() -> None:
    def may(forward: Forward) -> bool:
        program = torch.export.export(Branches(forward).eval(), (torch.randn(2, 4, 6, 6),), strict=False)
        return may_write(program)

    def statistics(normalize: Any, of_batch: bool) -> bool:
        return may(lambda m, x: normalize(x, m.u, m.u.clone(), None, None, of_batch))

    assert statistics(F.batch_norm, True) and statistics(F.instance_norm, True)
    assert not statistics(F.batch_norm, False) and not statistics(F.instance_norm, False)
    assert may(lambda m, x: m.one(x) + m.u.mul_(2).sum())
    for given in (
        torch.Tensor.contiguous,
        lambda x: F.dropout(x, training=False),
        lambda x: x,
        lambda x: x.view(-1),
        lambda x: x.chunk(1)[0],
    ):
        assert may(lambda m, x, given=given: given(x).relu_())
    for own in (lambda m, x: m.one(x), lambda m, x: torch.cat([x]), lambda m, x: F.batch_norm(x, m.u, m.u.clone())):
        assert not may(lambda m, x, own=own: own(m, x).add_(1).relu_())
    assert may(lambda m, x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)))
    assert not may(lambda m, x: m.other(m.one(x)).flatten(1).split(8, 1)[0] * x.shape[0])
