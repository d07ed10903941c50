"""A whole PyTorch model as one library: by `tvmconv.torch.compile`, and as a backend of torch.compile."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.accuracy import relative_error  # noqa: E402
from tvmconv.errors import BundleError, InputError, SourceError, TvmconvWarning  # noqa: E402


class Network(nn.Module):
    """Convolutions, a pool, a sum, answers in a dict; it decides by a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 12, 3, padding=1), nn.BatchNorm2d(12)
        self.pool, self.second, self.last = nn.MaxPool2d(3, 2, 1), nn.Conv2d(12, 12, 3, padding=1), nn.Linear(12, 5)

    def forward(self, image: Any, scale: float = 1.0, mask: Any = None) -> Any:
        if image.shape[-1] % 2:
            raise ValueError("odd")
        data = functional.relu(self.norm(self.first(image)))
        data = self.pool(data)
        data = self.second(data) + data
        if mask is not None:
            data = data * mask
        return {"features": data, "scores": [self.last(data.mean((2, 3))) * scale, None]}


def model() -> Network:
    torch.manual_seed(0)
    made = Network().eval()
    made.norm.running_mean.uniform_(-1, 1)
    made.norm.running_var.uniform_(0.5, 2)
    return made


def agrees(answer: Any, right: Any, most: float = 1e-5) -> bool:
    assert answer.dtype == right.dtype and answer.shape == right.shape
    return relative_error(answer.detach().double().numpy(), right.detach().double().numpy()) < most


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("torch") / "model.so"
    arguments = {"image": torch.rand(2, 3, 16, 20), "scale": 0.5, "mask": torch.rand(2, 12, 8, 10)}
    return tvmconv.torch.compile(model(), arguments, path, progress=None), path, arguments


def test_it_answers_as_the_model_in_its_structure(compiled: Any) -> None:
    fast, path, arguments = compiled
    right = model()(**arguments)
    for each in (fast, tvmconv.torch.load(path)):
        answer = each(**arguments)
        assert answer["scores"][1] is None
        assert agrees(answer["features"], right["features"]) and agrees(answer["scores"][0], right["scores"][0])


def test_data_that_lies_otherwise(compiled: Any) -> None:
    fast, _, arguments = compiled
    strided = {
        **arguments,
        "image": arguments["image"].to(memory_format=torch.channels_last),
        "mask": torch.rand(12, 8, 10, 2).permute(3, 0, 1, 2),
    }
    assert agrees(fast(**strided)["features"], model()(**strided)["features"])


def test_it_is_loaded_without_the_compiler(compiled: Any) -> None:
    program = f"""
import sys
sys.modules["tvm"] = None
import torch, tvmconv.torch
fast = tvmconv.torch.load({str(compiled[1])!r})
fast(image=torch.rand(2, 3, 16, 20), scale=0.5, mask=torch.rand(2, 12, 8, 10))
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"image": torch.rand(2, 3, 16, 22)}, r"input 0 is 2x3x16x22 torch.float32; .* compile it for this, too"),
        ({"image": torch.rand(2, 3, 16, 20).double()}, "torch.float64"),
        ({"image": torch.rand(2, 3, 16, 20, requires_grad=True)}, "needs a gradient"),
        ({"scale": 2.0}, r"an argument is 2.0; the model was compiled for 0.5"),
        ({"more": 1}, r"arguments are \(.*more=\.\.\..*\); the model was compiled for \("),
    ],
)
def test_other_arguments_are_refused(compiled: Any, changed: dict[str, Any], words: str) -> None:
    fast, _, arguments = compiled
    with pytest.raises(InputError, match=words):
        fast(**{**arguments, **changed})


class Scaled(nn.Module):
    def forward(self, data: Any, factor: Any) -> Any:
        return data * factor


def test_constants_are_of_the_same_type(tmp_path: Path) -> None:
    data = torch.arange(3)
    fast = tvmconv.torch.compile(Scaled().eval(), (data, 1), tmp_path / "model.so", progress=None)
    assert torch.equal(fast(data, 1), data)
    for other in (1.0, True, torch.ones(3), torch.tensor(1), None):
        with pytest.raises(InputError, match="an argument is"):
            fast(data, other)
    data = torch.rand(3)
    fast = tvmconv.torch.compile(Scaled().eval(), (data, float("nan")), tmp_path / "model.so", progress=None)
    assert fast(data, float("nan")).isnan().all()


def test_code_may_decide_by_buffers_that_are_numbers(tmp_path: Path) -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("stride", torch.tensor(2), persistent=False)
            self.register_buffer("size", torch.tensor([5]))

        def forward(self, data: Any) -> Any:
            frames = torch.ceil((data.shape[-1] - self.size) / self.stride + 1).to(torch.int64)
            more = (frames - 1) * self.stride + self.size - data.shape[-1]
            return functional.pad(data, (0, int(more))) if more > 0 else data

    network, data = Padded().eval(), torch.rand(2, 8)
    fast = tvmconv.torch.compile(network, data, tmp_path / "model.so", progress=None)
    assert fast(data).shape == (2, 9) and torch.equal(fast(data), network(data))


def test_named_arguments_in_any_order_and_copies(tmp_path: Path) -> None:
    class Difference(nn.Module):
        def forward(self, one: Any, other: Any) -> Any:
            return one - other

    arrays = {"one": torch.rand(2, 2), "other": torch.rand(2, 2)}
    fast = tvmconv.torch.compile(Difference().eval(), arrays, tmp_path / "model.so", progress=None)
    right = arrays["one"] - arrays["other"]
    copies = [copy.deepcopy(fast), pickle.loads(pickle.dumps(fast)), fast]
    del fast
    for each in copies:
        assert torch.equal(each(other=arrays["other"], one=arrays["one"]), right)
    # Bits that say that what lies in memory is the negative.
    flipped = torch.complex(arrays["one"], arrays["other"]).conj().imag
    assert torch.equal(copies[0](one=torch._neg_view(arrays["one"]), other=flipped), -right)
    with pytest.raises(InputError, match=r"torch\.sparse_coo"):
        copies[0](one=arrays["one"].to_sparse(), other=arrays["other"])


def test_in_bf16(tmp_path: Path) -> None:
    image = torch.rand(2, 3, 16, 20)
    fast = tvmconv.torch.compile(model(), image, tmp_path / "model.so", dtype=torch.bfloat16, progress=None)
    answer = fast(image.bfloat16())["features"]
    assert answer.dtype == torch.bfloat16 and agrees(answer.float(), model()(image)["features"], 2e-2)


def test_models_that_cannot_be_compiled(tmp_path: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, data: Any) -> Any:
            self.count += 1
            return data * self.count

    class Deciding(nn.Module):
        def forward(self, data: Any) -> Any:
            return data if data.sum() > 0 else -data

    path, data = tmp_path / "model.so", torch.rand(1, 3, 4, 4)

    class First(nn.Module):
        def forward(self, data: Any) -> Any:
            return torch.topk(data, 0)[0]

    with pytest.raises(SourceError, match="a topk of 0 elements is, for Relax, one of all"):
        tvmconv.torch.compile(First().eval(), data, path)
    with pytest.raises(InputError, match=r"call model.eval\(\) first"):
        tvmconv.torch.compile(model().train(), data, path)
    with pytest.raises(InputError, match=r"give a torch\.nn\.Module"):
        tvmconv.torch.compile(lambda data: data, data, path)
    with pytest.raises(SourceError, match="the model changes count in each call"):
        tvmconv.torch.compile(Counting().eval(), data, path)
    with pytest.raises(SourceError, match=r"torch\.export cannot read the model"):
        tvmconv.torch.compile(Deciding().eval(), data, path)
    assert not list(tmp_path.iterdir())


def test_networks_of_others_are_told(tmp_path: Path) -> None:
    from tvm import relax

    from tvmconv.network.compile import build

    given, builder = relax.Var("x", relax.TensorType((1, 4), "float32")), relax.BlockBuilder()
    with builder.function("main", [given]):
        with builder.dataflow():
            output = builder.emit_output(relax.op.nn.relu(given))
        builder.emit_func_output(output)
    build(builder.finalize(), tmp_path / "model.so")
    with pytest.raises(BundleError, match=r"call it by tvmconv\.load_network"):
        tvmconv.torch.load(tmp_path / "model.so")


def test_as_a_backend_of_torch_compile() -> None:
    plain, image = model(), torch.rand(2, 3, 16, 20)
    fast = torch.compile(plain, backend="tvmconv", dynamic=False)
    with torch.no_grad():
        for _ in range(2):
            assert agrees(fast(image)["features"], plain(image)["features"])
        plain.first.weight.mul_(2)  # the library has the weights as they were
        assert agrees(fast(image)["features"], plain(image)["features"])
        plain.second.weight.data = plain.second.weight * 2
        assert agrees(fast(image)["features"], plain(image)["features"])
    with pytest.warns(TvmconvWarning, match="gradients are needed"):
        loss = fast(image)["scores"][0].sum()
    loss.backward()
    assert plain.first.weight.grad is not None


@pytest.mark.parametrize("view", [lambda data: (data.view(-1), data + 1), lambda data: (data + 1, (data + 2).t())])
def test_answers_that_lie_as_those_of_pytorch(view: Any) -> None:
    """What works in place on a view of an input changes the input."""
    torch.compiler.reset()
    given, fast = torch.ones(2, 3), torch.compile(view, backend="tvmconv", dynamic=False)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", TvmconvWarning)
        answers, right = fast(given), view(given)
    assert [each.stride() for each in answers] == [each.stride() for each in right]
    for answer, each in zip(answers, right, strict=True):
        assert torch.equal(answer, each)
        assert (answer.data_ptr() == given.data_ptr()) == (each.data_ptr() == given.data_ptr())


def test_a_graph_that_the_backend_leaves_alone() -> None:
    class Cumulative(nn.Module):
        def forward(self, data: Any) -> Any:
            return torch.linalg.inv(data)

    data = torch.eye(4) * 2
    with pytest.warns(TvmconvWarning, match=r"PyTorch computes a graph of \d+ nodes"), torch.no_grad():
        answer = torch.compile(Cumulative(), backend="tvmconv", dynamic=False)(data)
    assert torch.equal(answer, data.inverse())


def test_weights_of_inference_mode_are_pytorchs() -> None:
    torch.compiler.reset()
    with torch.inference_mode():
        layer, data = nn.Conv2d(3, 4, 3).eval(), torch.rand(1, 3, 8, 8)
        with pytest.warns(TvmconvWarning, match="its weights were made in inference mode"):
            answer = torch.compile(layer, backend="tvmconv", dynamic=False)(data)
        assert torch.equal(answer, layer(data))


@pytest.mark.parametrize(
    ("size", "stride", "pad", "dilation"), [(3, 2, 1, 1), (2, 2, 0, 1), ((1, 3), 1, (0, 1), (1, 2)), (5, 1, 2, 1)]
)
@pytest.mark.parametrize("channels", [1, 24, 37])
def test_maximum_pools(size: Any, stride: Any, pad: Any, dilation: Any, channels: int, tmp_path: Path) -> None:
    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Conv2d(channels, channels, 1)
            self.pool = nn.MaxPool2d(size, stride, pad, dilation, ceil_mode=True)

        def forward(self, data: Any) -> Any:
            return self.pool(self.layer(data))

    made, data = Pool().eval(), torch.randn(2, channels, 11, 13)
    data[0, 0, 3, 3], data[1, 0, 2, 2] = float("nan"), -float("inf")
    made.layer.weight.data = torch.eye(channels)[..., None, None]
    made.layer.bias.data.zero_()
    if channels > 1:
        data[0, 0, 3, 3] = 1.0  # a product of a NaN and 0 in other channels is one, too
        data[1, 0, 2, 2] = 0.0
    fast = tvmconv.torch.compile(made, data, tmp_path / "model.so", progress=None)
    assert torch.equal(torch.nan_to_num(fast(data), 77), torch.nan_to_num(made(data), 77))


class PooledWithAnAxis(torch.nn.Module):  # type: ignore[misc]
    """Pools and a convolution on data that had an axis put in, in each place: as those of one dimension are exported."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Conv1d(4, 8, 3, padding=1)
        self.image = torch.nn.Conv2d(8, 6, (1, 3), stride=(1, 2))

    def forward(self, data: Any) -> Any:
        """Return pools along the line, and a convolution."""
        line, pool = self.line(data), torch.nn.functional
        put_in = line.unsqueeze(2)
        return (
            pool.max_pool1d(line, 3, 2, 1),
            pool.max_pool1d(line, 2, 1, dilation=2),
            pool.avg_pool1d(line, 3, 2, 1),
            pool.max_pool2d(put_in, (1, 3), (1, 2)),
            pool.avg_pool2d(line.unsqueeze(3), (3, 1), (2, 1), (1, 0)),
            self.image(put_in),
            pool.max_pool3d(put_in.unsqueeze(2), (1, 1, 3)),
            pool.max_pool3d(put_in.unsqueeze(4), (1, 2, 1)),
        )


def test_pools_along_a_line(tmp_path: Path) -> None:
    model, data = PooledWithAnAxis().eval(), torch.randn(2, 4, 10)
    network = tvmconv.torch.compile(model, data, tmp_path / "line.so")
    with torch.no_grad():
        for answer, expected in zip(network(data), model(data), strict=True):
            assert_near(answer, expected, 24)
