"""tvmconv.torch: optimized networks compute what PyTorch does, wherever PyTorch models are taken."""

from __future__ import annotations

import copy
import io
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from torch_models import All, Optional, networks  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import TvmconvError, TvmconvWarning  # noqa: E402
from tvmconv.runtime.bundle import read_bundle  # noqa: E402
from tvmconv.targets.target import Target  # noqa: E402
from tvmconv.torch import calls  # noqa: E402
from tvmconv.torch.calls import Notice  # noqa: E402
from tvmconv.torch.operator import convolution as operator  # noqa: E402
from tvmconv.torch.rewriting import rewrite  # noqa: E402

NAMES = [type(network).__name__ for network, _ in networks()]
Optimized = tuple[nn.Module, nn.Module, Any]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle with the kernels of all networks in f32, and of some in bf16 and f16."""
    path = tmp_path_factory.mktemp("torch") / "bundle"
    made = networks()
    everything = All().eval()
    everything.networks = nn.ModuleList(network for network, _ in made)
    halves = Halves(copy.deepcopy(made[0][0]))
    tvmconv.torch.optimize(
        Everything(everything, halves).eval(), tuple(given for _, given in made), bundle=path, progress=None
    )
    return path


class Halves(nn.Module):
    """A network in bf16 and f16."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.bf16, self.f16 = copy.deepcopy(network).bfloat16(), copy.deepcopy(network).half()

    def forward(self, x: Any) -> Any:
        return self.bf16(x.bfloat16()), self.f16(x.half())


class Everything(nn.Module):
    """All networks, so that their kernels are built together."""

    def __init__(self, networks: nn.Module, halves: nn.Module) -> None:
        super().__init__()
        self.networks, self.halves = networks, halves

    def forward(self, *inputs: Any) -> Any:
        return self.networks(*inputs), self.halves(*inputs[0])


@pytest.fixture
def residual(bundle: Path) -> Optimized:
    return _optimized(bundle, 0)


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def _optimized(bundle: Path, number: int, **options: Any) -> Optimized:
    network, given = networks()[number]
    return network, tvmconv.torch.optimize(network, given, bundle=bundle, progress=None, **options), given


def _assert_close(given: Any, expected: Any, tolerance: float = 2e-5) -> None:
    assert given.shape == expected.shape and given.dtype == expected.dtype
    assert (given.double() - expected.double()).norm() <= tolerance * expected.double().norm()


def _fallbacks(fast: nn.Module) -> list[str]:
    return [row.why for row in tvmconv.torch.report(fast) if row.why]


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_the_answers_are_the_models(number: int, bundle: Path) -> None:
    network, fast, given = _optimized(bundle, number)
    _assert_close(fast(*given), network(*given))
    assert _fallbacks(fast) == []
    last = [given.contiguous(memory_format=torch.channels_last) if given.dim() == 4 else given for given in given]
    _assert_close(fast(*last), network(*given))


class Written(nn.Module):
    """Sees what is written to its convolution's output through a view, which is one where PyTorch's tensors lie."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 1), nn.Linear(128, 5)

    def forward(self, x: Any) -> Any:
        y = self.conv(x) if x.isfinite().all() else x
        flat = y.flatten(1)
        y.relu_()
        return self.linear(flat), y.view(y.size(0), -1)


def test_a_model_that_looks_at_how_tensors_lie(bundle: Path) -> None:
    torch.manual_seed(1)
    network, given = Written().eval(), torch.randn(2, 3, 4, 4)
    fast = tvmconv.torch.optimize(network, given, bundle=bundle, progress=None)
    for data in (given, given.flip(2), given[..., None].repeat(1, 1, 1, 1, 2)[..., 0]):
        for answer, expected in zip(fast(data), network(data), strict=True):
            _assert_close(answer, expected)
    assert _fallbacks(fast) == []


@pytest.mark.parametrize(
    ("number", "computed"),
    [
        (0, {"conv2d-relu", "conv2d-add-relu", "conv2d"}),
        (1, {"conv2d-clip_0_6", "conv2d-silu", "conv2d-add", "conv2d-hardswish"}),
        (2, {"conv_transpose2d-leaky_0.1", "conv2d-gelu"}),
        (3, {"conv1d-tanh", "conv_transpose1d-sigmoid"}),
        (4, {"conv3d-elu_1", "conv_transpose3d-relu"}),
        (5, {"conv2d", "conv2d-relu", "conv2d-add-relu"}),
        (6, {"conv2d"}),
        (7, {"conv2d", "linear-gelu", "linear-add", "linear-prelu", "mean"}),
    ],
    ids=NAMES,
)
def test_what_is_fused(number: int, computed: set[str], bundle: Path) -> None:
    _, fast, _ = _optimized(bundle, number)
    assert {row.computes for row in tvmconv.torch.report(fast)} == computed


def test_kernels_that_take_tensors(residual: Optimized, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the GPUs' do."""
    network, fast, given = residual
    monkeypatch.setattr(calls, "is_addressed", lambda kernel: False)
    other = copy.deepcopy(fast)
    _assert_close(other(*given), network(*given))
    assert _fallbacks(other) == []


def test_outputs_have_their_channels_last(residual: Optimized) -> None:
    _, fast, given = residual
    assert fast(*given).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 2e-2), ("float16", 3e-3)])
def test_types_of_16_bits(dtype: str, tolerance: float, bundle: Path) -> None:
    kind = getattr(torch, dtype)
    network, fast, given = _optimized(bundle, 0, dtype=kind)
    _assert_close(fast(given[0].to(kind)), network(*given).to(kind), tolerance)
    assert _fallbacks(fast) == []


def test_whole_numbers_are_exact(bundle: Path) -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU()).eval()
    for parameter in network.parameters():
        parameter.copy_(torch.randint(-3, 4, parameter.shape))
    data = torch.randint(-9, 10, (2, 3, 8, 8)).float()
    fast = tvmconv.torch.optimize(network, data, bundle=bundle, progress=None)
    assert torch.equal(fast(data), network(data)) and _fallbacks(fast) == []


def test_another_shape_is_computed_by_torch_with_one_warning(residual: Optimized) -> None:
    network, fast, _ = residual
    data = torch.randn(3, 8, 10, 12)
    with pytest.warns(TvmconvWarning, match="no kernel for 3x8x10x12") as caught:
        _assert_close(fast(data), network(data))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(data)
    assert len(_fallbacks(fast)) == 3
    assert "F.conv2d" in str(tvmconv.torch.report(fast))


def test_what_no_kernel_computes_is_torchs(residual: Optimized) -> None:
    network, fast, given = residual
    with pytest.warns(TvmconvWarning, match="float64"):
        _assert_close(copy.deepcopy(fast).double()(given[0].double()), network.double()(given[0].double()), 1e-6)
    with pytest.raises(RuntimeError, match="channels"):
        fast(torch.randn(1, 9, 8, 8))
    assert fast(torch.randn(0, 8, 8, 8)).shape == (0, 16, 4, 4)


def test_gradients_are_torchs(bundle: Path) -> None:
    network, fast, given = _optimized(bundle, 0)
    network.requires_grad_(False)
    data = [given[0].clone().requires_grad_() for _ in range(2)]
    with torch.enable_grad():
        fast(data[0]).square().sum().backward()
        network(data[1]).square().sum().backward()
    _assert_close(data[0].grad, data[1].grad)
    assert set(_fallbacks(fast)) == {"gradients are needed"}


def test_autocast_and_jit_are_torchs(residual: Optimized) -> None:
    _, fast, given = residual
    with torch.autocast("cpu", torch.bfloat16):
        assert fast(*given).dtype == torch.bfloat16
    traced = torch.jit.trace(fast, given)
    other = torch.randn(2, 8, 8, 8)
    _assert_close(traced(other), fast(other))


def test_tensors_without_memory_are_torchs(residual: Optimized) -> None:
    network, fast, given = residual
    stacked = torch.stack([given[0], given[0] + 1])
    with pytest.warns(TvmconvWarning):
        answers = torch.func.vmap(fast)(stacked)
    _assert_close(answers[1], network(stacked[1]))
    assert copy.deepcopy(fast).to("meta")(given[0].to("meta")).shape == fast(*given).shape


def test_what_is_added_has_another_shape(bundle: Path) -> None:
    network = Optional().eval()
    data, offset = torch.randn(1, 3, 4, 4), torch.randn(1, 8, 1, 1)
    fast = tvmconv.torch.optimize(network, (data, offset), bundle=bundle, progress=None)
    _assert_close(fast(data, offset), network(data, offset))
    assert _fallbacks(fast) == []
    fast = tvmconv.torch.optimize(network, {"x": data, "offset": offset.expand(1, 8, 4, 4)}, bundle, progress=None)
    _assert_close(fast(data, offset), network(data, offset))
    assert _fallbacks(fast) == ["what is added has another shape, 1x8x1x1"]


def test_a_transposed_one_is_told_its_size() -> None:
    class Sized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.ConvTranspose2d(3, 4, 3, 2)

        def forward(self, x: Any) -> Any:
            return self.up(x, output_size=[10, 9]).relu() + self.up(input=x)[:, :, :1, :1]

    network, data = Sized().eval(), torch.randn(1, 3, 4, 4)
    fast = rewrite(network, [((data,), {})], Notice(silent=True))
    _assert_close(fast(data), network(data))
    assert "its output's size is given in each call" in _fallbacks(fast)
    _assert_close(torch.compile(fast, backend="eager", fullgraph=True)(data), network(data))


def test_weights_may_change(residual: Optimized) -> None:
    _, fast, given = residual
    before = fast(*given)
    changed = {name: value * 2 for name, value in fast.state_dict().items()}
    other = copy.deepcopy(fast)
    for way in ("copied", "assigned"):
        fast.load_state_dict(changed, assign=way == "assigned")
        doubled = fast(*given)
        assert not torch.allclose(doubled, before)
        fast.load_state_dict(other.state_dict())
        _assert_close(fast(*given), before, 1e-6)
    _assert_close(other(*given), before, 1e-6)


def test_weights_may_be_computed(residual: Optimized) -> None:
    _, fast, given = residual
    pruned, plain = copy.deepcopy(fast), copy.deepcopy(fast)
    for name in ("weight", "bias"):
        prune.l1_unstructured(pruned.conv1, name, 0.5)
        getattr(plain.conv1, name).copy_(getattr(pruned.conv1, name))
    _assert_close(pruned(*given), plain(*given))
    assert "a parameter is computed in each call" in _fallbacks(pruned)
    nn.utils.parametrizations.weight_norm(plain.conv2)
    _assert_close(plain(*given), pruned(*given))


def test_slopes_may_change(bundle: Path) -> None:
    network, fast, given = _optimized(bundle, 7)
    fast(*given)
    for slope in (fast.head.slope, network.slopes.weight):
        slope.mul_(-2)
    _assert_close(fast(*given), network(*given))
    _assert_close(fast(*given), network(*given))
    assert _fallbacks(fast) == []


def test_the_state_is_the_folded_models(residual: Optimized) -> None:
    _, fast, _ = residual
    names = {f"{name}.{kind}" for name in ("conv1", "conv2", "downsample.0") for kind in ("weight", "bias")}
    assert set(fast.state_dict()) == names


def test_a_model_is_copied_and_saved(residual: Optimized) -> None:
    _, fast, given = residual
    saved = io.BytesIO()
    torch.save(fast, saved)
    saved.seek(0)
    for other in (copy.deepcopy(fast), torch.load(saved, weights_only=False)):
        _assert_close(other(*given), fast(*given), 1e-6)
        assert _fallbacks(other) == []


def test_threads(residual: Optimized) -> None:
    network, fast, _ = residual
    inputs = [torch.randn(2, 8, 8, 8) for _ in range(4)]
    expected, wrong = [network(data) for data in inputs], []

    def work(data: Any, answer: Any) -> None:
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(fast(data), answer, atol=1e-4):
                    wrong.append(1)

    threads = [threading.Thread(target=work, args=each) for each in zip(inputs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_whole(dynamic: bool, residual: Optimized) -> None:
    network, fast, given = residual
    compiled = torch.compile(fast, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    _assert_close(compiled(*given), network(*given))
    data = torch.randn(3, 8, 12, 10)
    _assert_close(compiled(data), network(data))


@pytest.mark.slow
def test_compiled_by_inductor(residual: Optimized) -> None:
    network, fast, given = residual
    compiled = torch.compile(fast, fullgraph=True)
    _assert_close(compiled(*given), network(*given))


def test_exported(residual: Optimized) -> None:
    network, fast, given = residual
    exported = torch.export.export(fast, given)
    assert sum("tvmconv.convolution" in str(node.target) for node in exported.graph.nodes) == 3
    saved = io.BytesIO()
    torch.export.save(exported, saved)
    saved.seek(0)
    _assert_close(torch.export.load(saved).module()(*given), network(*given))


@pytest.mark.isa(*Target.parse("x86-64-v3").features)
def test_kernels_for_another_target(tmp_path: Path) -> None:
    network, data = nn.Conv2d(3, 8, 1).eval(), torch.randn(1, 3, 4, 4)
    for target in ("host", "x86-64-v3"):
        tvmconv.torch.optimize(network, data, tmp_path / "b", target=target, progress=None)
    kernels = read_bundle(tmp_path / "b").entries
    assert len({entry.target for entry in kernels}) == 2 and len({entry.signature for entry in kernels}) == 1


def test_a_bundle_for_other_machines_gets_kernels_for_this_one(tmp_path: Path) -> None:
    network, data = nn.Conv2d(3, 8, 1).eval(), torch.randn(1, 3, 4, 4)
    other = tvmconv.parse_signature("conv1d-n1-i4x8-o4x8-k1-s1-d1-p0_0-g1-NXC-XIO-f32")
    tvmconv.build([other], tmp_path / "b", "x86-64-v3")
    manifest = tmp_path / "b" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"avx2"', '"no such feature"'))
    with pytest.raises(tvmconv.errors.UnsupportedMachineError):
        tvmconv.load(tmp_path / "b")
    fast = tvmconv.torch.optimize(network, data, tmp_path / "b", progress=None)
    assert _fallbacks(fast) == []


def test_the_operator_is_sound() -> None:
    data, weight, bias = torch.randn(1, 4, 6, 5), torch.randn(8, 4, 3, 3), torch.randn(8)
    axes = ([2, 1], [1, 1], [1, 1], [1, 1], [0, 0])
    added = torch.randn(1, 8, 3, 5)
    torch.library.opcheck(operator, (data, weight, None, None, False, *axes, 1, ""))
    torch.library.opcheck(operator, (data, weight, bias, added, False, *axes, 1, "add-relu"))
    slope = torch.randn(8)
    torch.library.opcheck(operator, (data, weight, bias, added, False, *axes, 1, "prelu-add", slope))
    torch.library.opcheck(operator, (data, torch.randn(3, 5), None, None, False, [], [], [], [], [], 1, "relu"))
    for wrong in (None, slope[:4]):
        with pytest.raises(RuntimeError, match="slope"):
            operator(data, weight, bias, None, False, *axes, 1, "prelu", wrong)
    with torch.enable_grad(), pytest.raises(TvmconvError, match="gradients"):
        operator(data.requires_grad_(), weight, bias, None, False, *axes, 1, "").sum().backward()


def test_the_operator_uses_the_bundle(bundle: Path) -> None:
    network, given = networks()[6]
    tvmconv.torch.open_bundle(bundle)
    conv = network.conv
    arguments = (False, [1, 1], [0, 0], [0, 0], [1, 1], [0, 0], 1, "")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _assert_close(operator(given[0], conv.weight, conv.bias, None, *arguments), network(*given))
