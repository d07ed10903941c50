"""Random graphs as quantizers write them (QDQ), by a network and by onnxruntime, quantizer by quantizer.

`python -m tests.graphs.quantized` tries them for as long as told.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import ModelProto, numpy_helper

import tvmconv
from tests.many import try_many
from tvmconv.errors import TvmconvError
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.compare_quantized import find_wrong_quantizers, with_quantized
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes

from . import images, numbers, places
from .check import Outcome
from .draw import Operator, answers, draw

_NODES: tuple[Operator, ...] = (
    images.convolution,
    images.convolution,
    images.transposed,
    images.pool,
    images.pool,
    images.resize,
    numbers.activation,
    numbers.binary,
    numbers.matmul,
    places.move,
    places.part,
)
_OPERATORS = {f"{each.__name__}{at}": each for at, each in enumerate(_NODES)}
# Operators whose filter is fixed, and the axes of its outputs.
_FILTERS = {"Conv": 0, "ConvTranspose": 1, "MatMul": 1, "Gemm": 1}
_TYPES = (np.uint8, np.int8)


class _Quantizing:
    """Puts quantizers into a graph."""

    def __init__(self, model: ModelProto, data: np.ndarray, seed: int) -> None:
        self.model, self._random = model, random.Random(seed)
        graph = model.graph
        self._fixed = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
        made = [name for node in graph.node for name in node.output if name]
        every = ModelProto()
        every.CopyFrom(model)
        del every.graph.output[:]
        every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
        given = {each.name: data for each in graph.input}
        self._values = given | dict(zip(made, answers(every, given), strict=True))
        self._nodes: list[onnx.NodeProto] = []
        self._numbers: dict[str, tuple[str, str]] = {}
        self._known: dict[str, str] = {}

    def run(self) -> None:
        """Change the graph."""
        graph = self.model.graph
        for node in list(graph.node):
            for at, name in enumerate(node.input):
                if name in self._fixed:
                    if at == 1 and node.op_type in _FILTERS and self._fixed[name].dtype == np.float32:
                        node.input[at] = self._filter(node, self._fixed[name])
                elif name and self._values[name].dtype == np.float32 and self._random.random() < 0.9:
                    node.input[at] = self._between(name, node)
            self._nodes.append(node)
            for name in node.output:
                if name and node.op_type not in _FILTERS and self._random.random() < 0.6:  # as what it reads, if it may
                    self._numbers.setdefault(name, next(map(self._numbers.get, node.input), None) or self._drawn(name))
        del graph.node[:]
        graph.node.extend(self._nodes)

    def _constant(self, value: np.ndarray) -> str:
        graph = self.model.graph
        graph.initializer.append(numpy_helper.from_array(np.asarray(value), f"q{len(graph.initializer)}"))
        return graph.initializer[-1].name

    def _node(self, kind: str, *inputs: str, **attributes: int) -> str:
        name = f"{kind}_{len(self._nodes)}_{inputs[0]}"
        self._nodes.append(onnx.helper.make_node(kind, inputs, [name], name, **attributes))
        return name

    def _drawn(self, name: str) -> tuple[str, str]:
        value, kind = self._values[name], self._random.choice(_TYPES)
        bounds = np.iinfo(kind)
        least, greatest = min(float(value.min()), 0), max(float(value.max()), 0)
        scale = np.float32(max(greatest - least, 1e-2) / 255 * self._random.uniform(0.5, 1.2))
        zero = round(bounds.min - least / scale)
        if self._random.random() < 0.2:
            zero = self._random.choice((bounds.min, bounds.max, 0))
        zero = min(max(zero, bounds.min), bounds.max)
        shape = self._random.choice(((), (), (1,)))
        return self._constant(np.full(shape, scale)), self._constant(np.full(shape, zero, kind))

    def _between(self, name: str, node: onnx.NodeProto) -> str:
        """Return what a tensor is rounded to."""
        if name in self._known and self._random.random() < 0.7:
            return self._known[name]
        scale, zero = self._numbers.setdefault(name, self._drawn(name))
        self._known[name] = self._node("DequantizeLinear", self._node("QuantizeLinear", name, scale, zero), scale, zero)
        self._numbers[self._known[name]] = scale, zero
        return self._known[name]

    def _filter(self, node: onnx.NodeProto, value: np.ndarray) -> str:
        """Return a filter of integers."""
        kind = self._random.choice((np.int8, np.int8, np.uint8))
        axis = _FILTERS[node.op_type]
        if node.op_type == "Gemm" and any(each.name == "transB" and each.i for each in node.attribute):
            axis = 0
        if value.ndim == 2 and self._random.random() < 0.2:
            axis = 1 - axis
        by_channels = value.ndim > 1 and self._random.random() < 0.6 and axis < value.ndim
        others = tuple(each for each in range(value.ndim) if each != axis) if by_channels else None
        scale = (np.abs(value).max(others, keepdims=True) / self._random.choice((127, 150, 60)) + 1e-4).astype(
            np.float32
        )
        zero = np.zeros(scale.shape, kind)
        if kind is np.uint8:
            zero = np.array([self._random.randint(100, 156) for _ in range(scale.size)], kind).reshape(scale.shape)
        bounds = np.iinfo(kind)
        whole = np.clip(np.rint(value / scale) + zero, bounds.min, bounds.max).astype(kind)
        shape = (-1,) if by_channels else ()
        given = (whole, scale.reshape(shape), zero.reshape(shape))
        more = {"axis": axis} if by_channels else {}
        if not zero.any() and self._random.random() < 0.5:
            given = given[:2]
        return self._node("DequantizeLinear", *map(self._constant, given), **more)


def drawn(seed: int, steps: int | None = None) -> tuple[ModelProto, np.ndarray]:
    """Return a random quantized model and its data."""
    model, data = draw(seed, _OPERATORS, steps)
    _Quantizing(model, data, seed).run()
    return model, data


def check(model: ModelProto, data: np.ndarray) -> Outcome:
    """Return what comes of a quantized model and its input."""
    with tempfile.TemporaryDirectory() as folder:
        file, library = str(Path(folder, "model.onnx")), Path(folder, "model.so")
        onnx.save(model, file)
        try:
            fixed = fix_shapes(file)
            build(as_relax(with_quantized(fixed, {}), file), library, progress=lambda *_: None)
            given = {each.name: data for each in model.graph.input}
            wrong = find_wrong_quantizers(fixed, given, tvmconv.load_network(library)(**given))
        except TvmconvError as error:
            return Outcome("refused", str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            return Outcome("failed", f"{type(error).__name__}: {error}")
    return Outcome("wrong", "; ".join(wrong)) if wrong else Outcome("right", "")


def check_seed(seed: int, steps: int | None = None) -> tuple[Outcome, str]:
    """Return what comes of a seed's graph, and its text."""
    model, data = drawn(seed, steps)
    text = re.sub(r"\{[^{}\n]{60,}\}", "{...}", onnx.printer.to_text(model))
    return check(model, data), f"seed {seed}\n{text}"


if __name__ == "__main__":
    sys.exit(try_many(check_seed, "graphs.quantized", __doc__))
