"""What tvmconv.torch refuses, and its example, run as a user does."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from near import assert_near

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_models import Branching, Inverted, Residual, settled  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import BuildError, InputError, SourceError, TvmconvWarning  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402


class Inverse(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.inv(x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda: (Inverse().eval(), torch.eye(2)),
            "no part of the model can be compiled: the model: none of its operators can be compiled",
        ),
        (lambda: (Inverted(), torch.ones(1)), "training mode"),
        (lambda: ("resnet", torch.ones(1)), "torch.nn.Module"),
        (lambda: (torch.jit.script(nn.Conv2d(3, 8, 1).eval()), torch.ones(1, 3, 4, 4)), "the module it was made of"),
        (lambda: (settled(Residual()), 3), "example_inputs is a int"),
        (lambda: (nn.LazyConv2d(8, 1).eval(), torch.ones(1, 3, 4, 4)), "has no parameters yet.*; call the model once"),
        (
            lambda: (torch.compile(nn.Conv2d(3, 8, 1).eval()), torch.ones(1, 3, 4, 4)),
            "the model was made by torch.compile",
        ),
        (
            lambda: (nn.Sequential(torch.compile(nn.Conv2d(3, 8, 1))).eval(), torch.ones(1, 3, 4, 4)),
            "0 was made by torch.compile",
        ),
    ],
)
def test_bad_inputs(change: Callable[[], tuple[Any, Any]], message: str) -> None:
    model, examples = change()
    with pytest.raises(InputError, match=message):
        tvmconv.torch.optimize(model, examples)


def test_a_type_that_the_model_has_no_operator_for() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.LocalResponseNorm(3)).eval()
    with pytest.raises(InputError, match=r"cannot compute in torch.bfloat16: .*not implemented for 'BFloat16'"):
        tvmconv.torch.optimize(model, torch.ones(1, 3, 4, 4), dtype=torch.bfloat16)


@pytest.mark.parametrize(
    "write", [lambda d, y: d.update(y=y), lambda d, y: d.pop("x"), lambda d, y: d["more"].append(y)]
)
def test_writes_to_what_holds_the_arguments(write: Callable[[Any, Any], Any]) -> None:
    """Networks give answers alone, so PyTorch computes what writes to a dict or list."""

    class Writing(nn.Sequential):
        def forward(self, given: Any) -> Any:
            y = super().forward(given["x"])
            write(given, y)
            return y

    torch.manual_seed(0)
    model = Writing(nn.Conv2d(3, 8, 1), nn.ReLU()).eval()
    example = {"x": torch.ones(1, 3, 4, 4), "more": []}
    with pytest.raises(SourceError, match="changes a list or dict that it is given"):
        tvmconv.torch.compile(model, (example,), progress=None)
    fast = tvmconv.torch.optimize(model, (example,), progress=None)
    assert [*example] == ["x", "more"] and not example["more"]
    given = [{"x": torch.ones(1, 3, 4, 4), "more": []} for _ in range(2)]
    assert_near(fast(given[0]), model(given[1]).detach(), summed=3)
    assert given[0].keys() == given[1].keys() and len(given[0]["more"]) == len(given[1]["more"])


def test_a_part_that_torch_jit_compiled(tmp_path: Path) -> None:
    """It is copied, and the report says that it stays."""
    scripted = torch.jit.script(nn.Sequential(nn.ReLU(), nn.Conv2d(8, 4, 1)).eval())
    model, data = nn.Sequential(nn.Conv2d(3, 8, 1), scripted).eval(), torch.randn(1, 3, 4, 4)
    fast = tvmconv.torch.optimize(model, data, tmp_path / "b", progress=None)
    with torch.no_grad():
        assert_near(fast(data), model(data), summed=3 + 8, layers=2)
    report = tvmconv.torch.report(fast)
    assert {row.layer for row in report} == {"0"} and report.refused["1"] == "torch.jit compiled it"


def test_a_bad_type_and_a_foreign_model() -> None:
    with pytest.raises(InputError, match="float64"):
        tvmconv.torch.optimize(settled(Branching()), torch.ones(1, 3, 8, 8), dtype=torch.float64)
    with pytest.raises(InputError, match="model is a NoneType; give what"):
        tvmconv.torch.report(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="bundle is 5, a int; it must be a path"):
        tvmconv.torch.optimize(settled(Branching()), torch.ones(1, 3, 8, 8), bundle=5)  # type: ignore[arg-type]
    for asked in (tvmconv.torch.report, tvmconv.torch.networks):
        with pytest.raises(InputError, match=r"tvmconv\.torch\.optimize did not return this model"):
            asked(Branching())
    with pytest.raises(InputError, match="target is empty"):
        tvmconv.torch.optimize(settled(Branching()), torch.ones(1, 3, 8, 8), target=[])


# What a server lacks: importing it fails.
WITHOUT_TVM = "import runpy, sys; sys.modules['tvm'] = None; runpy.run_path({!r}, run_name='__main__')"


def test_the_example(tmp_path: Path) -> None:
    script = str(Path(__file__).parents[2] / "examples" / "torch_resnet.py")
    done = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith("usage: ")
    printed = []
    for command in ([script, "optimize"], ["-c", WITHOUT_TVM.format(script), "serve"]):
        call = [sys.executable, *command, "b", "w.pt"]
        done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    assert "-add-relu" in printed[0] and printed[1].startswith("class ")


@torch.no_grad()
def test_what_could_not_be_compiled_is_said_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that was killed may do better the next time, so a folder that noted it does not stay silent."""
    model = settled(nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU()))
    data = torch.rand(1, 3, 8, 8)

    def killed(*arguments: Any, **options: Any) -> None:
        raise BuildError("the compiler was killed")

    monkeypatch.setattr(import_module("tvmconv.network.compile"), "build", killed)
    for _ in range(2):
        with (
            pytest.warns(
                TvmconvWarning, match=r"could not be compiled; remove .*b to try again: 2 operators: .*killed"
            ),
            pytest.raises(InputError, match="no part of the model can be compiled"),
        ):
            tvmconv.torch.optimize(model, data, tmp_path / "b", progress=None)
        monkeypatch.undo()


def test_what_is_not_read_is_named_with_its_line(capfd: pytest.CaptureFixture[str]) -> None:
    class Bessel(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x)

    class Dropping(nn.Module):
        def forward(self, x: Any) -> Any:
            return nn.functional.adaptive_max_pool2d(x, 2, return_indices=True)

    with pytest.raises(SourceError, match=r"special_bessel_j0.*test_torch_refused\.py.*bessel_j0\(x\)"):
        read_torch(torch.export.export(Bessel(), (torch.zeros(3),)))
    with pytest.raises(SourceError, match=r"adaptive_max_pool2d.*return_indices.*its indices are used"):
        read_torch(torch.export.export(Dropping(), (torch.zeros(1, 2, 4, 4),)))
    gc.collect()  # TVM's builders warn as they go
    assert "Warning" not in capfd.readouterr().err
