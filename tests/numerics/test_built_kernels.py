"""A network's library has the code of its kernels that was built and checked, which LLVM does not see again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

tvm = pytest.importorskip("tvm")
from relax_modules import relax_module  # noqa: E402
from tvm import relax  # noqa: E402

from tvmconv.network.compile import export  # noqa: E402
from tvmconv.network.kernels.build import CODE, LOWERED  # noqa: E402
from tvmconv.network.passes import use_kernels  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

SHAPE = (1, 16, 12, 12)
RNG = np.random.default_rng(7)
DATA = RNG.standard_normal(SHAPE).astype(np.float32)


def _layers(builder: relax.BlockBuilder, data: Any) -> Any:
    """Return two convolutions, packed and by Winograd, and one whose filter is read in place; their kernels have the same names."""
    for outputs, taps in ((32, 1), (16, 3), (16, 1)):
        filter_ = np.random.default_rng(taps).standard_normal((outputs, int(data.ty.shape[1]), taps, taps))
        made = relax.op.nn.conv2d(data, relax.const(filter_.astype(np.float32)), padding=(taps // 2, taps // 2))
        data = builder.emit(relax.op.nn.relu(builder.emit(made)))
    return data


@pytest.fixture(scope="module")
def made() -> tvm.IRModule:
    return use_kernels(relax_module(_layers, (SHAPE,), "float32"), "host")


def _kernels(module: tvm.IRModule) -> list[Any]:
    return [each for each in module.functions.values() if LOWERED in (each.attrs or {})]


def _answer(module: tvm.IRModule, path: Path) -> Any:
    export(module, path)
    network = load_network(path)
    (found,) = network(**{network.inputs[0].name: DATA}).values()
    return found


def test_the_code_of_a_network_is_what_was_built(
    made: tvm.IRModule, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tvm.ir.load_json(tvm.ir.save_json(made))
    compiled: list[str] = []

    def noting(module: tvm.IRModule, *given: Any, **options: Any) -> Any:
        compiled.extend(variable.name_hint for variable in module.functions)
        return compile_(module, *given, **options)

    compile_ = tvm.compile
    monkeypatch.setattr(tvm, "compile", noting)
    found = _answer(made, tmp_path / "built.so")
    assert len(_kernels(made)) == 3
    assert not any(name.startswith("tvmconv_conv") for name in compiled)
    # The same functions, compiled again.
    for variable, function in made.functions_items():
        if CODE in (function.attrs or {}):
            made.update_func(variable, function.without_attr(CODE))
    assert np.array_equal(found, _answer(made, tmp_path / "again.so"))
    assert any(name.startswith("tvmconv_conv") for name in compiled)


def test_a_module_keeps_the_code_in_a_file(made: tvm.IRModule, tmp_path: Path) -> None:
    read = tvm.ir.load_json(tvm.ir.save_json(made))
    assert all(CODE in each.attrs for each in _kernels(read))
    assert np.array_equal(_answer(read, tmp_path / "read.so"), _answer(made, tmp_path / "made.so"))
