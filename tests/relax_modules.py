"""Relax modules for tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvmconv.network.compile import build
from tvmconv.runtime.networks.network import load_network


def relax_module(
    make: Callable[..., relax.Expr], shapes: Sequence[Any], dtypes: str | Sequence[str] = "float32"
) -> tvm.IRModule:
    """Return a module whose `main` applies `make` to a builder and inputs `x0`, `x1` and so on."""
    dtypes = [dtypes] * len(shapes) if isinstance(dtypes, str) else dtypes
    types = [relax.TensorType(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    given = [relax.Var(f"x{number}", each) for number, each in enumerate(types)]
    builder = relax.BlockBuilder()
    with builder.function("main", given):
        with builder.dataflow():
            output = builder.emit_output(make(builder, *given))
        builder.emit_func_output(output)
    return builder.finalize()


def computed(module: tvm.IRModule, *arrays: np.ndarray, **options: Any) -> list[np.ndarray]:
    """Return what the network of a module computes of its inputs in their order; options are those of `build`."""
    with tempfile.TemporaryDirectory() as folder:
        build(module, Path(folder) / "network.so", **options)
        network = load_network(Path(folder) / "network.so")  # which keeps what it needs of the file
    return list(network(**{each.name: array for each, array in zip(network.inputs, arrays, strict=True)}).values())
