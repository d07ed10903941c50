"""Files and variables that the pages take for granted: small models and arrays of the names that pages give them."""

from __future__ import annotations

import shutil
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from models import fixed, model, value
from onnx import helper

PADS = [1, 1, 1, 1]
FREE = ["batch", 3, "height", "width"]
MODELS = {
    # Its name, input, the channels that it convolves, and the last operators.
    "resnet50": model(
        [
            helper.make_node("Conv", ["x", "first"], ["stem"], pads=PADS, strides=[4, 4], name="stem"),
            helper.make_node("Relu", ["stem"], ["rectified"]),
            helper.make_node("Conv", ["rectified", "second"], ["block"], pads=PADS, name="block"),
            helper.make_node("GlobalAveragePool", ["block"], ["mean"]),
        ],
        [value("x", [1, 3, 224, 224])],
        [value("mean", [1, 64, 1, 1])],
        [fixed("first", 64, 3, 3, 3), fixed("second", 64, 64, 3, 3)],
    ),
    "detector": model(
        [
            helper.make_node("Conv", ["x", "filter"], ["wide"], pads=PADS, strides=[2, 2], name="p2o.Conv.0"),
            helper.make_node("Relu", ["wide"], ["rectified"]),
            helper.make_node("Conv", ["rectified", "last"], ["map"], name="last"),
        ],
        [value("x", FREE)],
        [value("map", ["batch", 1, "rows", "columns"])],
        [fixed("filter", 8, 3, 3, 3), fixed("last", 1, 8, 1, 1)],
    ),
    "mobilenet": model(
        [
            helper.make_node("Conv", ["image", "filter"], ["stem"], pads=PADS, strides=[4, 4], name="stem"),
            helper.make_node("GlobalAveragePool", ["stem"], ["mean"]),
            helper.make_node("Flatten", ["mean"], ["flat"]),
            helper.make_node("MatMul", ["flat", "classes"], ["scores"]),
        ],
        [value("image", [1, 3, 224, 224])],
        [value("scores", [1, 1000])],
        [fixed("filter", 8, 3, 3, 3), fixed("classes", 8, 1000)],
    ),
    "recogniser": model(
        [helper.make_node("Conv", ["x", "filter"], ["y"], pads=PADS, name="conv")],
        [value("x", FREE)],
        [value("y", ["batch", 8, "height", "width"])],
        [fixed("filter", 8, 3, 3, 3)],
    ),
    "vad": model(
        [
            helper.make_node("Unsqueeze", ["input", "one"], ["channel"]),
            helper.make_node("Conv", ["channel", "filter"], ["sound"], name="conv"),
            helper.make_node("Cast", ["sr"], ["rate"], to=1),
            helper.make_node("Div", ["sound", "rate"], ["voice"]),
        ],
        [value("input", ["batch", "length"]), value("sr", [], onnx.TensorProto.INT64)],
        [value("voice", None)],
        [fixed("filter", 4, 1, 5), onnx.numpy_helper.from_array(np.array([1]), "one")],
    ),
}
SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
PROGRAM = "#include <detector.h>\n\nint main(void) { return 0; }\n"
DETECTOR = "ch_PP-OCRv4_det_infer.onnx"


def supply(folder: Path, page: str) -> None:
    """Write the files of all pages; the batch of a model is free where a page gives it."""
    for name, made in deepcopy(MODELS).items():  # a page's are its own
        for each in (*made.graph.input[:1], *made.graph.output) if page == "bundles" else ():
            if each.type.tensor_type.shape.dim:
                each.type.tensor_type.shape.dim[0].dim_param = "batch"
        onnx.save(made, folder / f"{name}.onnx")
    onnx.save(MODELS["mobilenet"], folder / "model.onnx")
    (folder / "problems.toml").write_text(f'[[convolution]]\nsignature = "{SIGNATURE}"\n')
    (folder / "program.c").write_text(PROGRAM)
    rng = np.random.default_rng(0)
    np.savez(folder / "image.npz", x=rng.random((1, 3, 640, 640), np.float32))
    np.savez(folder / "images.npz", x=rng.random((1, 3, 224, 224), np.float32))
    np.savez(folder / "arrays.npz", input=rng.random((1, 512), np.float32), sr=np.array(16000))
    rng.random((1, 56, 56, 64), np.float32).tofile(folder / "data.bin")
    rng.random((3, 3, 64, 64), np.float32).tofile(folder / "filter.bin")
    package = find_spec("rapidocr_onnxruntime")
    if package and package.submodule_search_locations:
        shutil.copy(Path(package.submodule_search_locations[0]) / "models" / DETECTOR, folder)


TORCH = """import torch

torch.manual_seed(0)
layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1)
model = torch.nn.Sequential(*layers)
example, image = torch.rand(1, 3, 40, 40), torch.rand(1, 3, 40, 40)
other_image = torch.rand(1, 3, 33, 50)
"""
ARRAY = "import numpy as np\nimage = np.ones((1, 3, 640, 640), np.float32)\n"
MODULE = """import onnx
from tvm.relax.frontend.onnx import from_onnx

module = from_onnx(onnx.load("detector.onnx"), shape_dict={"x": [1, 3, 640, 640]}, keep_params_in_input=False)
"""
READER = """import numpy as np
from onnxruntime.quantization import CalibrationDataReader


class Reader(CalibrationDataReader):
    def __init__(self):
        self.images = iter([{"image": np.random.rand(1, 3, 224, 224).astype(np.float32)}])

    def get_next(self):
        return next(self.images, None)


reader = Reader()
"""
# What pages have before their first line: commands, and Python before each page's first.
FIRST = {
    "bundles": f"tvmconv build {SIGNATURE} -o conv.bundle",
    "commands": "tvmconv build resnet50.onnx -o resnet50.bundle && "
    f"tvmconv compile resnet50.onnx -o resnet50.so && cp resnet50.so resnet50-int8.so && tvmconv build {SIGNATURE} -o conv.bundle",
    "performance": "tvmconv build resnet50.onnx -o resnet50.bundle",
}
BEFORE = {
    "README": TORCH,
    "models": READER,
    "networks": ARRAY + MODULE,
    "onnxruntime": "import numpy as np\nimages = other_images = np.ones((1, 3, 320, 320), np.float32)\n",
    "pytorch": TORCH.replace("40, 40", "224, 224"),
}
