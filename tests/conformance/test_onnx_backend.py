"""ONNX's own backend tests of Conv and ConvTranspose, through compiled kernels from a bundle."""

from __future__ import annotations

import io
import unittest
import warnings
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx.backend.base
import onnx.backend.test
from evaluator import Evaluator
from onnx.backend.test.runner import BackendIsNotSupposedToImplementIt

import tvmconv
from tvmconv.frontends.onnx.reader import OnnxReader
from tvmconv.frontends.reader import Reading
from tvmconv.frontends.shapes import Bucket
from tvmconv.problem import Problem
from tvmconv.runtime.registry import Registry

CASES = r"^test_(basic_conv|conv_with|convtranspose|Conv[123]d|ConvTranspose|operator_conv)"
COUNT = 47


class Prepared(onnx.backend.base.BackendRep):
    """A model ready to run."""

    def __init__(self, model: onnx.ModelProto, registry: Registry) -> None:
        weights = {weight.name for weight in model.graph.initializer}
        self.inputs = [value.name for value in model.graph.input if value.name not in weights]
        self.evaluator = Evaluator(model, registry)

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        return tuple(self.evaluator.run(None, dict(zip(self.inputs, inputs, strict=True))))


class Kernels(onnx.backend.base.Backend):
    """Runs models with the kernels of a registry; while there is none, only collects them."""

    registry: ClassVar[Registry | None] = None
    models: ClassVar[list[onnx.ModelProto]] = []
    prepared: ClassVar[list[Prepared]] = []

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Prepared:
        if cls.registry is None:
            cls.models.append(model)
            raise BackendIsNotSupposedToImplementIt
        cls.prepared.append(Prepared(model, cls.registry))
        return cls.prepared[-1]

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def problems_of(model: onnx.ModelProto) -> list[Problem]:
    nodes, skipped = OnnxReader(model.SerializeToString(), "model", Reading(fuse=False)).read(Bucket())
    assert skipped == []
    return [node.problem for node in nodes]


def test_all_cases_pass_through_compiled_kernels(build_once):
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # of how ONNX computes the data of its other tests
        runner = onnx.backend.test.BackendTest(Kernels, __name__).include(CASES)

    def run() -> unittest.TestResult:
        return unittest.TextTestRunner(io.StringIO()).run(runner.test_suite)

    run()
    assert len(Kernels.models) == COUNT
    expected = [problem for model in Kernels.models for problem in problems_of(model)]
    Kernels.registry = tvmconv.load(build_once("onnx-backend", list(dict.fromkeys(expected))))
    result = run()
    assert [trace for _, trace in result.failures + result.errors] == []
    assert result.testsRun - len(result.skipped) == COUNT
    # Each convolution of each model was computed by a kernel, once; the evaluator has nothing else to do it with.
    assert [problem for prepared in Kernels.prepared for problem in prepared.evaluator.ran] == expected
    assert len(expected) >= COUNT
