"""The ONNX files that Python packages ship, with the shapes that their users run them at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvmconv.frontends import Model, read_model

RATE = np.array(16000)


@dataclass(frozen=True)
class Shipped:
    """A model of a package, how it is read, and how much it holds.

    Parameters
    ----------
    package, file
        Where it is.
    options
        What `read_model` is given.
    command
        The same for the command line.
    counts
        Convolutions, kernels without fusion, and skipped ones.
    epilogues
        How often each follows.
    """

    package: str
    file: str
    options: Mapping[str, Any] = field(compare=False)
    command: str
    counts: tuple[int, int, int]
    epilogues: Mapping[str, int] = field(compare=False)

    def path(self) -> str:
        """Return the file's path; skip the test if the package is not installed."""
        found = find_spec(self.package)
        if found is None or not found.submodule_search_locations:
            pytest.skip(
                f"the package {self.package} is not installed (pip install --no-deps {self.package.replace('_', '-')})"
            )
        path = Path(found.submodule_search_locations[0]) / self.file
        if not path.exists():
            pytest.skip(f"this release of {self.package} has no {self.file}")
        return str(path)

    def read(self, **more: Any) -> Model:
        """Read the model."""
        return read_model(self.path(), **self.options, **more)


def _shaped(shape: tuple[int, ...], **more: tuple[int, ...]) -> dict[str, Any]:
    return {"shapes": {"": shape, **more}}


VAD = {"": 1, "relu": 4, "sigmoid": 1}
MODELS = {
    "yolov8n": Shipped(
        "nudenet", "320n.onnx", _shaped((1, 3, 320, 320)), "--shape 1x3x320x320", (64, 35, 0), {"silu": 51, "silu-add": 6, "": 7}
    ),
    "detector": Shipped(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", _shaped((1, 3, 640, 640)), "--shape x=1x3x640x640", (64, 41, 0),
        {"": 17, "hardswish-scale": 24, "relu": 12, "hardsigmoid_0.1666667_0.5": 2, "hardsigmoid_0.2_0.5": 8, "sigmoid": 1},
    ),
    "recognizer": Shipped(
        "rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", _shaped((1, 3, 48, 320)), "--shape x=1x3x48x320", (38, 30, 0),
        {"": 1, "hardswish-scale": 28, "relu": 2, "hardsigmoid_0.1666667_0.5": 2, "silu": 5},
    ),
    "classifier": Shipped(
        "rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", _shaped((1, 3, 48, 192)), "--shape x=1x3x48x192",
        (53, 41, 0), {"hardswish": 18, "relu": 15, "hardsigmoid_0.2_0.5": 9, "": 4, "add": 7},
    ),
    "basic_pitch": Shipped(
        "basic_pitch", "saved_models/icassp_2022/nmp.onnx", {"batch": 1}, "--batch 1", (32, 23, 0), {"": 26, "relu": 3, "sigmoid": 3}
    ),
    "magika": Shipped("magika", "models/standard_v3_3/model.onnx", {"batch": 1}, "--batch 1", (1, 1, 0), {"": 1}),
    "vad": Shipped(
        "silero_vad", "data/silero_vad.onnx", {"shapes": {"input": (1, 512), "state": (2, 1, 128)}, "inputs": {"sr": RATE}},
        "--shape input=1x512 --shape state=2x1x128 --inputs sr=16000", (12, 6, 6), VAD,
    ),
    "vad_op15": Shipped("silero_vad", "data/silero_vad_16k_op15.onnx", {"shapes": {"input": (1, 512)}}, "--shape input=1x512", (6, 6, 0), VAD),
    "vad_sequence": Shipped("silero_vad", "data/silero_vad_16k_sequence.onnx", {"batch": 1}, "--batch 1", (6, 6, 0), VAD),
    "vad_half": Shipped("silero_vad", "data/silero_vad_half.onnx", {"shapes": {"input": (1, 512)}}, "--shape input=1x512", (6, 6, 0), VAD),
    "vad_ifless": Shipped(
        "silero_vad", "data/silero_vad_op18_ifless.onnx", {"shapes": {"input": (1, 512)}, "inputs": {"sr": RATE}},
        "--shape input=1x512 --inputs sr=16000", (12, 6, 6), VAD,
    ),
    "vad_openvino": Shipped("silero_vad", "data/silero_vad_openvino_16k.onnx", {"batch": 1}, "--batch 1", (6, 6, 0), VAD),
}  # fmt: skip
# Their kernels take minutes to build.
LARGE = ("yolov8n", "detector", "recognizer", "classifier", "basic_pitch")
PARAMETERS = [pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in MODELS]
