"""ONNX's reference evaluator with compiled kernels in place of every Conv and ConvTranspose."""

from __future__ import annotations

from typing import Any

import onnx
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from tvmconv.frontends.onnx.rules import OP_TYPES, node_problem
from tvmconv.problem import Problem
from tvmconv.runtime.registry import Registry

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


class Evaluator(ReferenceEvaluator):
    """Runs a model with the kernels of a registry, and lists the problems it ran.

    A convolution for which the registry has no kernel raises; there is no other implementation to fall back to.

    Parameters
    ----------
    model
        The model.
    registry
        Where the kernels come from.

    Attributes
    ----------
    ran : list of Problem
        Each convolution that a kernel computed, in order.
    """

    def __init__(self, model: onnx.ModelProto, registry: Registry) -> None:
        self.ran: list[Problem] = []
        super().__init__(model, new_ops=[self._operator(op_type, registry) for op_type in OP_TYPES])

    def _operator(self, name: str, registry: Registry) -> type[OpRun]:
        ran = self.ran

        def run(self: OpRun, x: Any, w: Any, b: Any = None, **attributes: Any) -> tuple[Any]:
            given = {key: value for key, value in attributes.items() if value is not None}
            problem = node_problem(name, given, x.shape, w.shape, None if b is None else b.shape, DTYPES[x.dtype.name])
            output = registry.lookup(problem)(x, w, b)
            ran.append(problem)
            return (output,)

        return type(name, (OpRun,), {"op_domain": "", "_run": run})
