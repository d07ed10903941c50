"""ONNX models run by onnxruntime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnx.external_data_helper import uses_external_data

from .weights import ROOT

if TYPE_CHECKING:
    from onnx import ModelProto


def open_session(
    model: ModelProto, optimizations: str = "ORT_ENABLE_ALL", optimized: str | None = None, options: Any = None
) -> Any:
    """Return an onnxruntime session of a model on the CPU, which raises errors and prints nothing.

    Weights that :func:`~tvmconv.frontends.onnx.weights.load_weights` left in files are read from there, not copied.

    Parameters
    ----------
    model
        The model, as that left it.
    optimizations
        One of ``onnxruntime.GraphOptimizationLevel``.
    optimized
        Where to write the optimized model, if anywhere.
    options
        A caller's complete ``onnxruntime.SessionOptions``, with providers; the folder of external weights is added.

    Raises
    ------
    ImportError
        If there is no onnxruntime.
    Exception
        Of onnxruntime's own classes, if it refuses the model.
    """
    import onnxruntime

    own: dict[str, Any] = {}
    if options is None:
        # Between quantizations of data it quantizes weights, too, which the model has in f32.
        own = {"providers": ["CPUExecutionProvider"], "disabled_optimizers": ["WeightBiasQuantization"]}
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Of two quantizations, one after the other, it makes one of another scale.
        options.add_session_config_entry("session.disable_double_qdq_remover", "1")
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, optimizations)
        if optimized is not None:  # nothing is run: it needs no threads, nor packed weights
            options.optimized_model_filepath, options.intra_op_num_threads = optimized, 1
            options.add_session_config_entry("session.disable_prepacking", "1")
    if any(map(uses_external_data, model.graph.initializer)):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", ROOT)
    return onnxruntime.InferenceSession(model.SerializeToString(), options, **own)
