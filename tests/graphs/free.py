"""Random networks of free extents: one library beside onnxruntime at random sizes, and beside a network of one of them.

``python -m tests.graphs.free`` tries them for as long as told.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper

import tvmconv
from tests.many import try_many
from tvmconv.errors import InputError, TvmconvError
from tvmconv.family import Extent
from tvmconv.frontends.shapes import Bucket
from tvmconv.network.compile import build
from tvmconv.network.read.onnx.reader import as_relax, fix_shapes, read_onnx

from .check import Outcome, difference
from .draw import answers

# From one pixel and less than a tile to primes and more than a tile.
SIZES = (1, 2, 3, 5, 7, 8, 13, 16, 31, 37, 64, 67)
_UNARY = ("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu", "Mish", "Elu", "Softplus", "Abs", "Exp")
# Operators that add, along what is free or by weights, in another order than of fixed extents.
_SUMS = {
    "AveragePool",
    "GlobalAveragePool",
    "Resize",
    "InstanceNormalization",
    "ReduceMean",
    "ReduceSum",
    "Softmax",
    "LayerNormalization",
    "CumSum",
    "LSTM",
    "STFT",
    "GRU",
}


class FreeDraw:
    """A network as far as it is drawn.

    Parameters
    ----------
    seed
        Of the generator.

    Attributes
    ----------
    values
        The channels of each tensor, and what makes its spatial extents: those of one text are equal.
    """

    def __init__(self, seed: int) -> None:
        self.random, self._numbers = random.Random(seed), np.random.default_rng(seed)
        self.rank = self.random.choice((2, 2, 2, 1))
        self.values: dict[str, tuple[int, str]] = {"x": (4, "")}
        self._nodes: list[onnx.NodeProto] = []
        self._weights: list[onnx.TensorProto] = []
        self._outputs: list[str] = []

    def model(self) -> onnx.ModelProto:
        """Return a model of some random nodes; what nothing reads is an output."""
        steps: list[Callable[[str], None]] = [
            self._convolution, self._convolution, self._convolution, self._transposed, self._pool, self._unary, self._normal,
            self._enlarged, self._joined, self._added, self._gated, self._padded, self._rows, self._part, self._head,
            self._chosen, self._written, self._scanned, self._sampled, self._recurrent, self._picked, self._framed, self._repeated,
        ]  # fmt: skip
        for _ in range(self.random.randint(2, 7)):
            recent = self.random.random() < 0.7
            self.random.choice(steps)([*self.values][-1] if recent else self.random.choice([*self.values]))
        read = {name for node in self._nodes for name in node.input}
        names = [name for name in self.values if name not in read and name != "x"] + self._outputs
        if not names:
            self._unary("x")
            names = [[*self.values][-1]]
        extents = ["h", "w"][: self.rank]
        given = [helper.make_tensor_value_info("x", 1, [self.random.choice(("n", 1)), 4, *extents])]
        made = [helper.make_tensor_value_info(name, 1, None) for name in names]
        graph = helper.make_graph(self._nodes, "drawn", given, made, self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=10)

    def _node(self, kind: str, *inputs: str, **attributes: object) -> str:
        name = f"v{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def _weight(self, *shape: int) -> str:
        numbers = self._numbers.standard_normal(shape) / max(np.prod(shape[1:]), 1) ** 0.5
        return self._constant(numbers.astype(np.float32))

    def _constant(self, array: object) -> str:
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def _each(self, number: int) -> list[int]:
        return [number] * self.rank

    def _convolution(self, name: str) -> None:
        channels, key = self.values[name]
        tap, stride, dilation = self.random.choice(
            ((1, 1, 1), (3, 1, 1), (3, 1, 1), (3, 2, 1), (3, 1, 2), (5, 1, 1), (2, 2, 1))
        )
        groups = self.random.choice((1, 1, channels, 2 if channels % 2 == 0 else 1))
        outputs = channels if groups > 1 else self.random.choice((4, 8))
        pad = tap // 2 * dilation
        made = self._node(
            "Conv", name, self._weight(outputs, channels // groups, *self._each(tap)), self._weight(outputs), strides=self._each(stride),
            dilations=self._each(dilation), group=groups, pads=self._each(pad) * 2,
        )  # fmt: skip
        same = stride == 1 and tap % 2 == 1
        self.values[made] = outputs, key if same else f"{key}c{tap}{stride}"

    def _transposed(self, name: str) -> None:
        channels, key = self.values[name]
        tap, stride, pad, more = self.random.choice(
            ((2, 2, 0, 0), (4, 2, 1, 0), (3, 1, 1, 0), (3, 2, 1, 1), (3, 2, 0, 0))
        )
        made = self._node(
            "ConvTranspose", name, self._weight(channels, 4, *self._each(tap)), strides=self._each(stride), pads=self._each(pad) * 2,
            output_padding=self._each(more),
        )  # fmt: skip
        whole = (tap - stride - 2 * pad + more) == 0
        self.values[made] = 4, key + ("" if stride == 1 else "*2" if whole else "t")

    def _pool(self, name: str) -> None:
        channels, key = self.values[name]
        kind, (tap, stride) = (
            self.random.choice(("MaxPool", "AveragePool")),
            self.random.choice(((2, 2), (3, 1), (3, 2))),
        )
        pad = 1 if tap == 3 else 0
        made = self._node(
            kind, name, kernel_shape=self._each(tap), strides=self._each(stride), pads=self._each(pad) * 2
        )
        self.values[made] = channels, key if stride == 1 else f"{key}p{tap}"

    def _unary(self, name: str) -> None:
        self.values[self._node(self.random.choice(_UNARY), name)] = self.values[name]

    def _normal(self, name: str) -> None:
        channels, key = self.values[name]
        scales = self._weight(channels), self._weight(channels)
        kind = self.random.choice(("batch", "instance", "layer", "softmax"))
        if kind == "batch":
            more = (
                self._weight(channels),
                self._constant(np.abs(self._numbers.standard_normal(channels)).astype(np.float32) + 0.5),
            )
            made = self._node("BatchNormalization", name, *scales, *more)
        elif kind == "instance":
            made = self._node("InstanceNormalization", name, *scales)
        elif kind == "softmax":
            made = self._node("Softmax", name, axis=self.random.choice((1, -1)))
        else:
            last = self._node("Transpose", name, perm=[0, *range(2, self.rank + 2), 1])
            normal = self._node("LayerNormalization", last, *scales)
            made = self._node("Transpose", normal, perm=[0, self.rank + 1, *range(1, self.rank + 1)])
        self.values[made] = channels, key

    def _enlarged(self, name: str) -> None:
        channels, key = self.values[name]
        like = self.random.choice([*self.values])
        nearest = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        how = self.random.choice(({"mode": "linear"}, nearest, {"mode": "cubic" if self.rank == 2 else "linear"}))
        if self.random.random() < 0.5 and self.values[like][1] != key:
            head = self._node("Shape", name, start=0, end=2)
            sizes = self._node("Concat", head, self._node("Shape", like, start=2), axis=0)
            made, after = self._node("Resize", name, "", "", sizes, **how), self.values[like][1]
        else:
            scales = self._constant(np.array([1, 1, *self._each(2)], np.float32))
            made, after = self._node("Resize", name, "", scales, **how), f"{key}*2"
        self.values[made] = channels, after

    def _joined(self, name: str) -> None:
        channels, key = self.values[name]
        other = self.random.choice([each for each, (_, known) in self.values.items() if known == key])
        self.values[self._node("Concat", name, other, axis=1)] = channels + self.values[other][0], key

    def _added(self, name: str) -> None:
        channels, key = self.values[name]
        other = self.random.choice([each for each, known in self.values.items() if known == (channels, key)])
        self.values[self._node(self.random.choice(("Add", "Mul", "Sub", "Max")), name, other)] = channels, key

    def _gated(self, name: str) -> None:
        """Add squeeze and excitation."""
        channels, key = self.values[name]
        mean = self._node("GlobalAveragePool", name)
        gate = self._node("Sigmoid", self._node("Conv", mean, self._weight(channels, channels, *self._each(1))))
        self.values[self._node("Mul", name, gate)] = channels, key

    def _padded(self, name: str) -> None:
        channels, key = self.values[name]
        pads = self._constant(np.array([0, 0, *self._each(1), 0, 0, *self._each(2)], np.int64))
        mode = self.random.choice(("constant", "edge", "wrap"))
        self.values[self._node("Pad", name, pads, mode=mode)] = channels, f"{key}+3"

    def _rows(self, name: str) -> None:
        """Add a product of pixels as rows."""
        channels, _ = self.values[name]
        flat = self._node("Reshape", name, self._constant(np.array([0, channels, -1], np.int64)))
        rows = self._node("Transpose", flat, perm=[0, 2, 1])
        self._outputs.append(self._node("MatMul", rows, self._weight(channels, 6)))

    def _part(self, name: str) -> None:
        channels, key = self.values[name]
        begin, end, step = self.random.choice(
            ((0, 2**62, 2), (1, 2**62, 1), (0, -1, 1), (-1, -(2**63), -1), (-2, -(2**63), -2))
        )
        numbers = [self._constant(np.array([each], np.int64)) for each in (begin, end, self.rank + 1, step)]
        self.values[self._node("Slice", name, *numbers)] = channels, f"{key}[{begin}:{end}:{step}]"

    def _chosen(self, name: str) -> None:
        """Add elements at places that numbers decide, some counted from the end."""
        axis = self.random.choice((1, self.rank + 1))
        place = self._node("ArgMax", name, axis=axis, keepdims=1)
        if self.random.random() < 0.5:
            place = self._node("Neg", place)
        picked = self._node("GatherElements", name, place, axis=axis)
        self.values[self._node("Sub", name, picked)] = self.values[name]

    def _written(self, name: str) -> None:
        axis = self.random.choice((1, self.rank + 1))
        place = self._node("ArgMax", name, axis=axis, keepdims=1)
        new = self._node("ReduceMin", name, self._constant(np.array([axis])), keepdims=1)
        reduction = self.random.choice(("none", "add"))
        made = self._node("ScatterElements", name, place, new, axis=axis, reduction=reduction)
        self.values[made] = self.values[name]

    def _scanned(self, name: str) -> None:
        axis = self._constant(np.array(self.random.choice((1, self.rank + 1))))
        made = self._node("CumSum", name, axis, exclusive=self.random.choice((0, 1)))
        self.values[self._node("Softsign", made)] = self.values[name]

    def _sampled(self, name: str) -> None:
        """Add samples between pixels, at places computed from other pixels."""
        if self.rank != 2:
            return self._chosen(name)
        channels, _ = self.values[name]
        other = self.random.choice([*self.values])
        bounds = [self._constant(np.array([each])) for each in (0, 2, 1)]
        grid = self._node("Transpose", self._node("Slice", other, *bounds), perm=[0, 2, 3, 1])
        outside, align = self.random.choice(("zeros", "border")), self.random.choice((0, 1))
        made = self._node("GridSample", name, grid, mode="bilinear", padding_mode=outside, align_corners=align)
        self.values[made] = channels, self.values[other][1]
        return None

    def _recurrent(self, name: str) -> None:
        """Add a layer whose steps are the pixels."""
        channels, _ = self.values[name]
        flat = self._node("Reshape", name, self._constant(np.array([0, channels, -1], np.int64)))
        rows = self._node("Transpose", flat, perm=[2, 0, 1])
        kind, gates = self.random.choice((("LSTM", 4), ("GRU", 3)))
        direction, count = self.random.choice((("forward", 1), ("reverse", 1), ("bidirectional", 2)))
        weights = self._weight(count, gates * 5, channels), self._weight(count, gates * 5, 5)
        self._outputs.append(self._node(kind, rows, *weights, hidden_size=5, direction=direction))

    def _picked(self, name: str) -> None:
        """Add columns at places that numbers decide, by several indices."""
        place = self._node("ArgMax", name, axis=self.rank + 1, keepdims=1)
        rows = self._node("ReduceMax", place, self._constant(np.array([0, 1])), keepdims=0)
        columns = self._node("Transpose", name, perm=[self.rank + 1, *range(self.rank + 1)])
        self._outputs.append(self._node("GatherND", columns, rows))

    def _framed(self, name: str) -> None:
        """Add spectra of parts of each image as one row."""
        row = self._node("Reshape", name, self._constant(np.array([0, -1], np.int64)))
        step, length = (self._constant(np.array(each)) for each in self.random.choice(((2, 4), (3, 7))))
        self._outputs.append(self._node("STFT", row, step, "", length))

    def _repeated(self, name: str) -> None:
        """Add the sum of copies along an axis that a number names."""
        copies = self._node(
            "Expand",
            self._node("Unsqueeze", name, self._constant(np.array(1))),
            self._constant(np.array([1, 3, 1, *self._each(1)])),
        )
        self.values[self._node("ReduceSum", copies, self._constant(np.array([1])), keepdims=0)] = self.values[name]

    def _head(self, name: str) -> None:
        channels, _ = self.values[name]
        flat = self._node("Flatten", self._node("GlobalAveragePool", name))
        self._outputs.append(self._node("Gemm", flat, self._weight(channels, 3), self._weight(3)))


def check(model: onnx.ModelProto, chance: random.Random, fixed: bool) -> Outcome:
    """Return what comes of a model at some sizes; if `fixed`, beside a network of one of them, too."""
    dims = [each.dim_param or each.dim_value for each in model.graph.input[0].type.tensor_type.shape.dim]
    free = {"x": tuple(Extent(name=each) if isinstance(each, str) else Extent.of(each) for each in dims)}
    with tempfile.TemporaryDirectory() as folder:
        source, library = str(Path(folder, "model.onnx")), Path(folder, "model.so")
        onnx.save(model, source)
        try:
            build(as_relax(fix_shapes(source, free=free), source, free), library)
        except TvmconvError as error:
            return Outcome("refused", str(error))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
            return Outcome("failed", f"{type(error).__name__}: {error}")
        network, wrong = tvmconv.load_network(library), []
        for number in range(6):
            shape = [
                each if isinstance(each, int) else chance.choice(SIZES[:4] if each == "n" else SIZES) for each in dims
            ]
            data = np.random.default_rng(number).standard_normal(shape).astype(np.float32)
            try:
                right = answers(model, {"x": data})
            except Exception:  # noqa: BLE001 - nothing would be left of this size
                right = []
            try:
                found = [*network(x=data).values()]
            except InputError as error:
                # Of few pixels some array may have none, though outputs have some.
                if right and all(each.size for each in right) and min(shape[2:]) > 3:
                    wrong.append(f"{shape}: {error}")
                continue
            pairs = zip(found, right, strict=True) if right else []
            wrong += [f"{shape}, output {at}: {text}" for at, pair in enumerate(pairs) if (text := difference(*pair))]
        if fixed and right and all(each.size for each in right):
            wrong += _beside_fixed(source, network, data, Path(folder, "fixed.so"))
    return Outcome("wrong", "; ".join(wrong)) if wrong else Outcome("right", "")


def _beside_fixed(source: str, network: tvmconv.Network, data: np.ndarray, library: Path) -> list[str]:
    """Return differences from the answers of a network of one size: no bit with the same algorithms, unless sums run along free extents."""
    rows = build(read_onnx(source, Bucket({"x": data.shape})), library)
    same = [row.algorithm for row in rows] == [row["algorithm"] for row in network.description["report"]]
    exact = same and not _SUMS & {node.op_type for node in onnx.load(source).graph.node}
    pairs = zip(network(x=data).values(), tvmconv.load_network(library)(x=data).values(), strict=True)
    texts = [difference(*pair) or (exact and not np.array_equal(*pair) and "other bits") for pair in pairs]
    return [f"{data.shape}, output {at}: {text}, of fixed extents" for at, text in enumerate(texts) if text]


def check_seed(seed: int) -> tuple[Outcome, str]:
    """Return what comes of a seed's network, and its text."""
    model = FreeDraw(seed).model()
    text = re.sub(r"\{[^{}\n]{60,}\}", "{...}", onnx.printer.to_text(model))
    return check(model, random.Random(seed), fixed=seed % 4 == 0), f"seed {seed}\n{text}"


if __name__ == "__main__":
    sys.exit(try_many(check_seed, "graphs.free", __doc__))
