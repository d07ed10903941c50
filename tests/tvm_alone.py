"""Answers of TVM alone: of Relax modules, of its readings of ONNX nodes, and of PyTorch functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from tvmconv.accuracy import tolerance


def ran(mod: Any, *arrays: np.ndarray) -> Any:
    """Return what a module answers, compiled by TVM alone; the first of several answers."""
    mod = relax.transform.DecomposeOpsForInference()(mod)
    machine = relax.VirtualMachine(tvm.compile(mod, "llvm"), tvm.cpu())
    answer = machine["main"](*map(tvm.runtime.tensor, arrays))
    return (answer if isinstance(answer, tvm.runtime.Tensor) else answer[0]).numpy()


def module(write: Callable[..., Any], *types: tuple[tuple[Any, ...], str]) -> Any:
    """Return a module of one expression of inputs of some shapes and types."""
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"x{n}", relax.TensorType(*each)) for n, each in enumerate(types)]
    with builder.function("main", inputs):
        builder.emit_func_output(builder.emit(write(*inputs)))
    return builder.finalize()


def answer_of(write: Callable[..., Any], *arrays: np.ndarray) -> Any:
    return ran(module(write, *((x.shape, str(x.dtype)) for x in arrays)), *arrays)


def read(operator: str, *arrays: np.ndarray, fixed: int = 0, outputs: int = 1, opset: int = 17, **given: Any) -> Any:
    """Return TVM's reading of an ONNX node, whose last `fixed` inputs are constants."""
    names, results = [f"x{n}" for n in range(len(arrays))], [f"y{n}" for n in range(outputs)]
    cut = len(names) - fixed
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names[:cut], arrays, strict=False)
    ]
    weights = [numpy_helper.from_array(x, name) for name, x in zip(names[cut:], arrays[cut:], strict=True)]
    node = helper.make_node(operator, names, results, name="it", **given)
    declared = [onnx.helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "g", inputs, declared, weights)
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), opset=opset)


def read_and_run(operator: str, *arrays: np.ndarray, fixed: int = 0, **given: Any) -> Any:
    return ran(read(operator, *arrays, fixed=fixed, **given), *arrays[: len(arrays) - fixed])


def exported(function: Callable[..., Any], *arrays: np.ndarray) -> Any:
    """Return what TVM reads of a PyTorch function."""
    torch = pytest.importorskip("torch")
    from tvm.relax.frontend.torch import from_exported_program

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *given: Any) -> Any:
            return function(torch, *given)

    return from_exported_program(torch.export.export(Model(), tuple(map(torch.from_numpy, arrays))))


def same(answer: Any, right: Any) -> None:
    np.testing.assert_allclose(answer, right, **tolerance(np.asarray(right, np.float32), summed=8))
