"""Operators between the kernels of a bf16 network: computed in f32, with f32's operators, and rounded once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmconv.accuracy import UNIT

pytest.importorskip("tvm")
from ml_dtypes import bfloat16
from tvm import relax
from tvm.ir import Call

from tests.numerics.test_network import module
from tvmconv.lowering.common.elementary_arithmetic import is_elementary
from tvmconv.lowering.common.rewrites import find_all
from tvmconv.network.compile import build
from tvmconv.network.lower import schedule_functions
from tvmconv.network.options import check_target
from tvmconv.network.passes import use_kernels
from tvmconv.runtime.networks.network import load_network

ROUNDING = 2.0**-8


def powers(builder: Any, data: Any) -> Any:
    """A number to fixed powers, as Snake and GPT-2's GELU have it."""
    square, cube = (
        builder.emit(relax.op.power(data, relax.const(np.array(number, bfloat16)))) for number in (2.0, 3.0)
    )
    return builder.emit(relax.op.add(square, cube))


def test_powers_are_products(tmp_path: Path) -> None:
    array = np.random.default_rng(0).uniform(0.5, 3, (2, 5, 48)).astype(bfloat16)
    mod = module(powers, [array.shape], "bfloat16")
    functions = schedule_functions(use_kernels(mod), check_target("host"))
    others = [each for variable, each in functions.functions_items() if variable.name_hint != "main"]
    assert others and not any(is_elementary(call) for each in others for call in find_all(each.body, Call))
    build(mod, tmp_path / "network.so")
    (answer,) = load_network(tmp_path / "network.so")(x0=array).values()
    wide = array.astype(np.float64)
    np.testing.assert_allclose(answer.astype(np.float64), wide**2 + wide**3, rtol=UNIT["bfloat16"])
