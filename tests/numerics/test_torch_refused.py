"""What tvmconv.torch refuses, and its example, run as a user does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch_models import Branching, Inverted, Residual, settled  # noqa: E402

import tvmconv.torch  # noqa: E402
from tvmconv.errors import InputError  # noqa: E402


def _exported() -> nn.Module:
    return torch.export.export(nn.Conv2d(3, 8, 1).eval(), (torch.ones(1, 3, 4, 4),)).module()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: (nn.ReLU().eval(), torch.ones(2)), "no convolution"),
        (lambda: (Inverted(), torch.ones(1)), "training mode"),
        (lambda: ("resnet", torch.ones(1)), "torch.nn.Module"),
        (lambda: (torch.jit.script(nn.Conv2d(3, 8, 1).eval()), torch.ones(1, 3, 4, 4)), "the module it was made of"),
        (lambda: (_exported(), torch.ones(1, 3, 4, 4)), "the module that was exported"),
        (lambda: (settled(Residual()), 3), "example_inputs is a int"),
    ],
)
def test_bad_inputs(change: Callable[[], tuple[Any, Any]], message: str) -> None:
    model, examples = change()
    with pytest.raises(InputError, match=message):
        tvmconv.torch.optimize(model, examples)


def test_a_bad_type_and_a_foreign_model() -> None:
    with pytest.raises(InputError, match="float64"):
        tvmconv.torch.optimize(settled(Branching()), torch.ones(1, 3, 8, 8), dtype=torch.float64)
    with pytest.raises(InputError, match="model is a NoneType; give what"):
        tvmconv.torch.report(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="bundle is 5, a int; it must be a path"):
        tvmconv.torch.optimize(settled(Branching()), torch.ones(1, 3, 8, 8), bundle=5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="path is None, a NoneType; it must be a path"):
        tvmconv.torch.open_bundle(None)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no layer"):
        tvmconv.torch.report(Branching())


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
    assert "conv2d-add-relu" in printed[0] and printed[1].startswith("class ")
