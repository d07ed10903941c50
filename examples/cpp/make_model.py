"""Write `spots.onnx`, a small detector of bright spots: for each colour, the contrast of each place to its surround, blurred.

usage: python make_model.py FILE
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HEIGHT, WIDTH = 96, 128


def main(path: str) -> None:
    """Write the model."""
    distance = np.hypot(*np.mgrid[-4:5, -4:5])
    centre, surround = distance <= 2, (distance > 2) & (distance <= 4)
    kernel = (centre / centre.sum() - surround / surround.sum()).astype(np.float32)
    spots = np.zeros((4, 3, 9, 9), np.float32)
    for colour in range(3):
        spots[colour, colour] = kernel
    spots[3] = kernel / 3
    blur = np.full((4, 1, 3, 3), 1 / 9, np.float32)
    heat = np.array([2, 2, 2, 6], np.float32).reshape(1, 4, 1, 1)
    weights = [numpy_helper.from_array(each, name) for name, each in (("a", spots), ("b", blur), ("c", heat))]
    weights.append(numpy_helper.from_array(np.array([-4], np.float32), "d"))
    nodes = [
        helper.make_node("Conv", ["picture", "a"], ["s"], name="spots", pads=[4, 4, 4, 4]),
        helper.make_node("Relu", ["s"], ["bright"]),
        helper.make_node("Conv", ["bright", "b"], ["smooth"], name="blur", pads=[1, 1, 1, 1], group=4),
        helper.make_node("Conv", ["smooth", "c", "d"], ["h"], name="heat"),
        helper.make_node("Sigmoid", ["h"], ["map"]),
    ]
    inputs = [helper.make_tensor_value_info("picture", TensorProto.FLOAT, (1, 3, HEIGHT, WIDTH))]
    outputs = [helper.make_tensor_value_info("map", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "spots", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


if __name__ == "__main__":
    main(sys.argv[1])
