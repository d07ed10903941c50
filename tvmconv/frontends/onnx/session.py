"""ONNX models run by onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnx import ModelProto


def open_session(model: ModelProto, optimizations: str = "ORT_ENABLE_ALL", optimized: str | None = None) -> Any:
    """Return onnxruntime's session of a model on the CPU, which prints nothing: what goes wrong is raised.

    Parameters
    ----------
    model
        The model, its weights within.
    optimizations
        One of ``onnxruntime.GraphOptimizationLevel``.
    optimized
        Where to write the optimized model, if anywhere.

    Raises
    ------
    ImportError
        If there is no onnxruntime.
    Exception
        Of onnxruntime's own classes, if it refuses the model.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, optimizations)
    if optimized is not None:
        options.optimized_model_filepath = optimized
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
