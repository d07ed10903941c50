"""Formats of models that tvmconv does not read, and the libraries that convert them."""

from __future__ import annotations

from pathlib import Path

_WEIGHTS = (
    "load it in Python and call tvmconv.torch.optimize, or write model.pt2:"
    " torch.export.save(torch.export.export(model, (example,)), 'model.pt2')"
)
_BY_OPENVINO = "OpenVINO converts it: openvino.save_model(openvino.convert_model(PATH), 'model.xml')"
_BY_KERAS = "Keras (3) converts it: model.export('model.onnx', format='onnx')"
CONVERSIONS = {
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".safetensors"), _WEIGHTS),
    **dict.fromkeys((".tflite", ".pb", ".pdmodel"), _BY_OPENVINO),
    **dict.fromkeys((".h5", ".keras"), _BY_KERAS),
}


def advise_conversion(path: str) -> str:
    """Return advice on converting a file of another format, as the end of a message; empty if there is none."""
    folder = (Path(path) / "saved_model.pb").is_file()
    advice = CONVERSIONS.get(".pb" if folder else Path(path).suffix.lower(), "")
    return f"; {advice.replace('PATH', repr(path))}" if advice else ""
