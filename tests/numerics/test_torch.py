"""tvmconv.torch.optimize: copies of models whose calls are answered by networks, wherever PyTorch models are taken."""

from __future__ import annotations

import copy
import io
import sys
import threading
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tvmconv.accuracy import tolerance

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import prune  # noqa: E402
from torch_models import All, Optional, Residual, networks, settled  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import BundleError, TvmconvWarning  # noqa: E402
from tvmconv.targets.target import Target  # noqa: E402
from tvmconv.torch.store import INDEX, Store  # noqa: E402

Optimized = tuple[nn.Module, nn.Module, Any]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("torch") / "bundle"


@pytest.fixture
def residual(bundle: Path) -> Optimized:
    return optimized(bundle)


@pytest.fixture(autouse=True)
def inference() -> Iterator[None]:
    with torch.no_grad():
        yield


def optimized(bundle: Path, **options: Any) -> Optimized:
    network, given = networks()[0]
    assert isinstance(network, Residual)
    return network, tvmconv.torch.optimize(network, given, bundle=bundle, progress=None, **options), given


# Of two layers of 3x3 taps of 16 channels at most, a few of one tap, and what follows.
alike = partial(assert_near, summed=2 * 16 * 9, layers=8)


def refused(fast: nn.Module, path: str = "") -> list[str]:
    """Return why calls were PyTorch's."""
    return tvmconv.torch.report(fast).calls.get(path, [])


def test_the_answers_are_the_models(bundle: Path) -> None:
    made = networks()
    everything = All().eval()
    everything.networks = nn.ModuleList(network for network, _ in made)
    given = tuple(given for _, given in made)
    fast = tvmconv.torch.optimize(everything, given, bundle=bundle, progress=None)
    report = tvmconv.torch.report(fast)
    assert [row for row in report if row.why] == [] and report.refused == {}
    assert {row.layer for row in report} >= {"networks.0.conv1", "networks.2.up", "networks.7.norm"}
    epilogues = {row.signature.partition("-f32")[2] for row in report.kernels if not row.why}
    assert {"-bias-add-relu", "-bias-leaky_0.1", "-bias-tanh", "-bias-elu_1", "-bias-gelu"} <= epilogues
    last = [
        tuple(each.contiguous(memory_format=torch.channels_last) if each.dim() == 4 else each for each in one)
        for one in given
    ]
    for data in (given, last):
        for answer, (network, _), inputs in zip(fast(*data), made, data, strict=True):
            alike(answer, network(*inputs))
    assert refused(fast) == []


class Foreign(nn.Module):
    """Operators that networks lack, between what they have: also of weights alone, and random ones."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 4, 3), nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.conv(x))
        z = torch.linalg.inv(self.linear.weight) @ y.mean((2, 3))[:, :, None]
        whole = torch.linalg.inv(z.expand(-1, -1, 4) + torch.eye(4))
        mean, _ = torch.mode(y.flatten(2))
        return {"x": x, "whole": whole + self.linear(mean), "noise": torch.rand(3), "y": y}


@pytest.fixture(scope="module")
def foreign() -> Optimized:
    torch.manual_seed(0)
    network, data = Foreign().eval(), torch.rand(1, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    return network, tvmconv.torch.optimize(network, data, progress=None), data


def test_operators_that_networks_lack_are_torchs(foreign: Optimized) -> None:
    network, fast, data = foreign
    torch.manual_seed(1)
    answer = fast(data)
    torch.manual_seed(1)
    for (name, got), expected in zip(answer.items(), network(data).values(), strict=True):
        alike(got, expected)
        assert got.stride() == expected.stride(), name  # as they lie, too
    assert answer["x"] is data
    assert not torch.equal(fast(data)["noise"], answer["noise"])
    report = tvmconv.torch.report(fast)
    by_torch = {row.computes: row.why for row in report if row.by == "PyTorch"}
    assert set(by_torch) >= {"linalg_inv.default", "mode.default", "rand.default"}
    assert [row.computes for row in report if row.by == "PyTorch"].count("linalg_inv.default") == 1  # not of weights
    assert "there is no conversion of it (File " in by_torch["mode.default"]
    assert "mean, _ = torch.mode(y.flatten(2))" in by_torch["mode.default"]
    assert {row.layer for row in report if row.by != "PyTorch"} >= {"conv", "linear"}
    assert "linalg_inv.default" in str(report) and "linalg_inv.default</td>" in report._repr_html_()


def test_copies_have_weights_of_their_own_between_networks(foreign: Optimized) -> None:
    network, fast, data = foreign
    copied = copy.deepcopy(fast)
    expected = fast(data)["whole"]
    alike(copied(data)["whole"], expected)
    copied.linear.weight.mul_(2)
    alike(fast(data)["whole"], expected)
    changed = copy.deepcopy(network)
    changed.linear.weight.mul_(2)
    alike(copied(data)["whole"], changed(data)["whole"])
    assert refused(copied) == ["linear.weight has other values"] and refused(fast) == []


class Deciding(nn.Module):
    """Decides by numbers, so that it is no program, but its blocks are; one of them is called in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks = nn.Conv2d(8, 8, 1), nn.ModuleList([settled(Residual(8, 8)), nn.Conv2d(8, 3, 1)])
        self.table = nn.Embedding(4, 8)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        if x.sum() > 1e9:
            raise ValueError("large")
        for block in self.blocks[:1]:
            x = block(block(x))
        return self.blocks[1](x + self.table.weight[0, :, None, None])


def test_submodules_of_what_is_no_program() -> None:
    torch.manual_seed(0)
    network, data = Deciding().eval(), torch.randn(1, 8, 8, 8)
    fast = tvmconv.torch.optimize(network, data, progress=None)
    alike(fast(data), network(data))
    report = tvmconv.torch.report(fast)
    assert list(report.refused) == [""] and "if x.sum() > 1e9:" in report.refused[""]
    assert {row.layer.partition(".")[0] for row in report} == {"first", "blocks"}
    assert {row.output for row in report if row.layer == "blocks.0.conv1"} == {"1x8x4x4 float32", "1x8x2x2 float32"}
    assert report.calls == {} and "PyTorch runs the model: torch.export cannot read the model" in str(report)
    with pytest.warns(TvmconvWarning, match=r"blocks\.1: not compiled for 2x8x2x2 float32"):
        alike(fast(data.repeat(2, 1, 1, 1)), network(data.repeat(2, 1, 1, 1)))


def test_a_program_of_torch_export(bundle: Path) -> None:
    network, given = networks()[0]
    program = torch.export.export(network, given)
    fast = tvmconv.torch.optimize(program, given, bundle=bundle, progress=None)
    alike(fast(*given), network(*given))
    assert [row for row in tvmconv.torch.report(fast) if row.why] == []
    graph = tvmconv.torch.optimize(torch.fx.symbolic_trace(network).eval(), given, bundle=bundle, progress=None)
    alike(copy.deepcopy(graph)(*given), network(*given))
    assert refused(graph) == []


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_types_of_16_bits(dtype: str, bundle: Path) -> None:
    kind = getattr(torch, dtype)
    network, fast, given = optimized(bundle, dtype=kind)
    alike(fast(given[0].to(kind)), network(*given).to(kind))
    assert refused(fast) == []


def test_whole_numbers_are_exact() -> None:
    network = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU()).eval()
    for parameter in network.parameters():
        parameter.copy_(torch.randint(-3, 4, parameter.shape))
    data = torch.randint(-9, 10, (2, 3, 8, 8)).float()
    fast = tvmconv.torch.optimize(network, data, progress=None)
    assert torch.equal(fast(data), network(data)) and refused(fast) == []


def test_other_calls_are_torchs_with_one_warning(residual: Optimized) -> None:
    network, fast, given = residual
    data = torch.randn(3, 8, 10, 12)
    with pytest.warns(
        TvmconvWarning, match=r"the model: not compiled for 3x8x10x12 float32.*an example of it"
    ) as caught:
        assert torch.equal(fast(data), network(data))
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fast(data)
    with pytest.raises(RuntimeError, match="channels"), pytest.warns(TvmconvWarning):
        fast(torch.randn(1, 9, 8, 8))
    with pytest.warns(TvmconvWarning):
        assert fast(torch.randn(0, 8, 8, 8)).shape == (0, 16, 4, 4)
    with pytest.warns(TvmconvWarning, match="not compiled for 2x8x8x8 float32, a object"), pytest.raises(TypeError):
        fast(given[0], object())
    double = copy.deepcopy(fast).double()
    alike(double(given[0].double()), network.double()(given[0].double()))
    assert "not compiled for 3x8x10x12 float32" in str(tvmconv.torch.report(fast))


def test_gradients_training_hooks_and_modes_are_torchs(residual: Optimized) -> None:
    network, fast, given = residual
    network.requires_grad_(False)
    data = [given[0].clone().requires_grad_() for _ in range(2)]
    with torch.enable_grad():
        fast(data[0]).square().sum().backward()
        network(data[1]).square().sum().backward()
    alike(data[0].grad, data[1].grad)
    with torch.autocast("cpu", torch.bfloat16):
        assert fast(*given).dtype == torch.bfloat16
    assert refused(fast) == ["gradients are needed", "autocast is on"]
    stacked = torch.stack([given[0], given[0] + 1])
    alike(torch.func.vmap(fast)(stacked)[1], network(stacked[1]))
    alike(torch.jit.trace(fast, given)(given[0] * 2), network(given[0] * 2))
    assert refused(fast)[2:] == ["its operators are watched or transformed"]
    called = []
    handle = fast.conv2.register_forward_hook(lambda *_: called.append(1))
    fast(*given)
    handle.remove()
    fast(*given)
    assert called == [1]
    trained = copy.deepcopy(fast).train()
    assert not torch.equal(trained(*given), network(*given))
    assert copy.deepcopy(fast).to("meta")(given[0].to("meta")).shape == fast(*given).shape


def test_weights_may_change(residual: Optimized) -> None:
    network, fast, given = residual
    assert fast.state_dict().keys() == network.state_dict().keys()
    for way in ("copied", "assigned", "data"):
        changed, plain = copy.deepcopy(fast), copy.deepcopy(network)
        if way == "data":
            changed.conv1.weight.data = changed.conv1.weight * 2
            plain.conv1.weight.mul_(2)
        else:
            state = {name: value * 2 for name, value in network.state_dict().items() if value.is_floating_point()}
            changed.load_state_dict(state, strict=False, assign=way == "assigned")
            plain.load_state_dict(state, strict=False)
        for each in (changed, copy.deepcopy(changed)):  # a copy's networks are for the old weights, too
            alike(each(*given), plain(*given))
            assert refused(each) == ["conv1.weight has other values"]
    replaced = copy.deepcopy(fast)
    replaced.relu = nn.Identity()
    plain = copy.deepcopy(network)
    plain.relu = nn.Identity()
    alike(replaced(*given), plain(*given))
    prune.l1_unstructured(replaced.conv1, "weight", 0.5)
    prune.l1_unstructured(plain.conv1, "weight", 0.5)
    alike(replaced(*given), plain(*given))


def test_weights_that_are_computed_are_computed_once(bundle: Path) -> None:
    network, given = networks()[0]
    nn.utils.parametrizations.weight_norm(network.conv1)
    nn.utils.weight_norm(network.conv2)
    prune.l1_unstructured(network.downsample[0], "weight", 0.5)
    fast = tvmconv.torch.optimize(network, given, bundle=bundle, progress=None)
    alike(fast(*given), network(*given))
    assert [row for row in tvmconv.torch.report(fast) if row.why] == [] and refused(fast) == []
    assert "conv1.parametrizations.weight.original0" in fast.state_dict()
    assert tvmconv.torch.report(fast).refused == {}


def test_a_model_is_copied_and_saved(bundle: Path, tmp_path: Path) -> None:
    _, fast, given = optimized(bundle)
    saved = io.BytesIO()
    torch.save(fast, saved)
    saved.seek(0)
    for other in (copy.deepcopy(fast), torch.load(saved, weights_only=False)):
        alike(other(*given), fast(*given))
        assert refused(other) == []
        other.conv1.weight.zero_()
        other(*given)
        assert len(refused(other)) == 1
    lost = tvmconv.torch.optimize(nn.Conv2d(3, 4, 1).eval(), torch.rand(1, 3, 2, 2), tmp_path / "lost", progress=None)
    saved = io.BytesIO()
    torch.save(lost, saved)
    for each in (tmp_path / "lost").iterdir():
        each.unlink()
    saved.seek(0)
    with pytest.warns(TvmconvWarning, match="using PyTorch"):
        other = torch.load(saved, weights_only=False)
    alike(other(torch.ones(1, 3, 2, 2)), lost(torch.ones(1, 3, 2, 2)))


def test_threads(residual: Optimized) -> None:
    network, fast, _ = residual
    inputs = [torch.randn(2, 8, 8, 8) for _ in range(4)]
    expected, wrong = [network(data) for data in inputs], []

    def work(data: Any, answer: Any) -> None:
        with torch.no_grad():
            for _ in range(50):
                if not torch.allclose(fast(data), answer, **tolerance(answer, summed=(8 + 16) * 9, layers=6)):
                    wrong.append(1)

    threads = [threading.Thread(target=work, args=each) for each in zip(inputs, expected, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_and_exported_it_is_the_model(dynamic: bool, residual: Optimized) -> None:
    network, fast, given = residual
    torch.compiler.reset()
    compiled = torch.compile(fast, fullgraph=True, dynamic=dynamic, backend="eager")
    alike(compiled(*given), network(*given))
    data = torch.randn(3, 8, 12, 10)
    alike(compiled(data), network(data))
    program = torch.export.export(fast, given)
    alike(program.module()(*given), network(*given))


def test_examples_of_several_kinds(bundle: Path) -> None:
    torch.manual_seed(0)
    network, data, offset = Optional().eval(), torch.randn(1, 3, 4, 4), torch.randn(1, 8, 1, 1)
    examples = [data, (data, offset), {"x": data, "offset": None}]
    fast = tvmconv.torch.optimize(network, examples, bundle=bundle, progress=None)
    alike(fast(data), network(data))
    alike(fast(data, offset), network(data, offset))
    alike(fast(offset=None, x=data), network(data))
    assert refused(fast) == []
    with pytest.warns(TvmconvWarning, match="not compiled for 1x3x4x4 float32, 2.0"):
        alike(fast(data, 2.0), network(data, 2.0))


def test_a_folder_serves_without_the_compiler(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network, fast, given = optimized(bundle)
    before = (bundle / INDEX).read_text()
    for name in [name for name in sys.modules if name.partition(".")[0] == "tvm" or name.startswith("tvmconv.network")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tvm", None)
    other = tvmconv.torch.optimize(copy.deepcopy(network), given, bundle=bundle, progress=None)
    assert torch.equal(other(*given), fast(*given)) and (bundle / INDEX).read_text() == before
    network.conv1.weight.mul_(2)  # is another program
    with pytest.raises(tvmconv.errors.MissingExtraError):
        tvmconv.torch.optimize(network, given, bundle=bundle, progress=None)


@pytest.mark.isa(*Target.parse("x86-64-v3").features)
def test_networks_for_other_targets(tmp_path: Path) -> None:
    network, data = nn.Conv2d(3, 8, 1).eval(), torch.randn(1, 3, 4, 4)
    targets = ["x86-64-v3", Target.parse("host").name]
    fast = tvmconv.torch.optimize(network, data, tmp_path / "b", target=targets, progress=None)
    kept = Store(tmp_path / "b")._read()
    assert {each.target for each in kept} == set(targets) and len({each.key for each in kept}) == 1
    (row,) = {row.by for row in tvmconv.torch.report(fast)}
    assert max(targets, key=lambda name: len(Target.parse(name).features)) in row
    index = tmp_path / "b" / INDEX
    for each in {each.target for each in kept} - {targets[0]}:
        index.write_text(index.read_text().replace(f'"{each}"', '"another"'))
    with pytest.raises(tvmconv.errors.TargetError, match="only compiled for CPUs"):
        tvmconv.torch.optimize(network, data, tmp_path / "b", target="cuda:sm_80", progress=None)


def test_a_module_whose_forward_is_its_own(bundle: Path) -> None:
    network, given = networks()[0]
    plain = network.forward
    network.forward = lambda x: plain(x) + 1
    fast = tvmconv.torch.optimize(network, given, bundle=bundle, progress=None)
    alike(fast(*given), network(*given))
    with pytest.warns(TvmconvWarning):
        alike(fast(given[0][:1]), network(given[0][:1]))


def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    network, data = nn.Conv2d(3, 8, 1).eval(), torch.randn(1, 3, 4, 4)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a").write_text("a")
    with pytest.raises(BundleError, match=r"it has no networks\.json"):
        tvmconv.torch.optimize(network, data, tmp_path / "notes")
    (tmp_path / "old").mkdir()
    for content, words in (('{"tvmconv": "0.0.1", "programs": []}', r"made by tvmconv 0\.0\.1"), ("{", "is damaged")):
        (tmp_path / "old" / INDEX).write_text(content)
        with pytest.raises(BundleError, match=words):
            tvmconv.torch.optimize(network, data, tmp_path / "old")
