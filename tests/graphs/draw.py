"""Random ONNX graphs: each node reads values that there are, and is kept if onnxruntime computes it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

# More elements than this are no small test; numbers beyond this are few digits.
_MOST_ELEMENTS, _MOST = 20_000, 1e4
_TRIES = 200
OPSETS = (13, 17, 18, 21)
SHAPES = (
    (2, 6, 9, 8), (1, 4, 12, 12), (4, 7, 9), (1, 8, 13), (6, 10), (2, 4, 5, 6, 7), (3, 4, 5, 6), (5, 16), (2, 12, 16), (1, 3, 16, 16),
    (8,), (1, 12, 7, 1), (3, 1, 5, 4, 4),
)  # fmt: skip


@dataclass
class Draw:
    """A graph as far as it is drawn, and what operators draw from.

    Attributes
    ----------
    seed
        Of the generators.
    opset
        The version of ONNX' operators.
    values
        The values there are, by name, as onnxruntime computed them.
    constants
        The graph's initializers.
    nodes
        The graph's nodes.
    """

    seed: int
    opset: int
    values: dict[str, np.ndarray] = field(default_factory=dict)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random, self.numbers = random.Random(self.seed), np.random.default_rng(self.seed)

    def pick(self, choices: Sequence[Any]) -> Any:
        """Return one of some choices."""
        return self.random.choice(choices)

    def constant(self, value: Any, dtype: Any = np.float32) -> str:
        """Return the name of an initializer."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value, dtype)
        return name

    def weight(self, *shape: int) -> str:
        """Return the name of an initializer of normally distributed numbers."""
        return self.constant(self.numbers.standard_normal(shape) / max(shape[-1] if shape else 1, 1) ** 0.5)

    def axis(self, rank: int) -> int:
        """Return an axis, counted from either end."""
        return self.random.randrange(-rank, rank)

    def other(self, fits: Callable[[np.ndarray], bool]) -> str | None:
        """Return the name of a value that fits."""
        names = [name for name, value in self.values.items() if fits(value)]
        return self.pick(names) if names else None

    def node(self, kind: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """Add a node of so many outputs; return the name of the first."""
        names = [f"v{len(self.nodes)}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, f"n{len(self.nodes)}", **attributes))
        return names[0]

    def model(self, inputs: Sequence[str], outputs: Sequence[str], nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
        """Return a model of some nodes."""
        used = {*_read(nodes)}
        graph = helper.make_graph(
            list(nodes),
            "drawn",
            [_described(name, self.values[name]) for name in inputs],
            [_described(name, self.values.get(name)) for name in outputs],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items() if name in used],
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)


Operator = Callable[[Draw, str, np.ndarray], "str | None"]


def draw(seed: int, operators: dict[str, Operator], steps: int | None = None) -> tuple[onnx.ModelProto, np.ndarray]:
    """Return a random model of one input, ``x``, and its data.

    Parameters
    ----------
    seed
        Says which.
    operators
        By name, what adds a node that reads a value, or several; None: the operator does not take it.
    steps
        How many operators; None: some.
    """
    state = Draw(seed, random.Random(seed).choice(OPSETS))
    x = state.numbers.standard_normal(state.pick(SHAPES)).astype(np.float32)
    state.values["x"] = x
    names = list(operators)
    for _ in range(steps or state.random.randint(2, 8)):
        for _ in range(_TRIES):
            # Mostly on with the last value.
            recent = state.random.random() < 0.7
            name = list(state.values)[-1] if recent else state.pick(list(state.values))
            nodes, constants = len(state.nodes), dict(state.constants)
            added = operators[state.pick(names)](state, name, state.values[name])
            if added is not None and (made := _computed(state, nodes)):
                state.values |= made
                break
            del state.nodes[nodes:]
            state.constants = constants
    used = {*_read(state.nodes)}
    results = [name for name in state.values if name not in used and name != "x"]
    return state.model(["x"] if "x" in used else [], results, state.nodes), x


def answers(model: onnx.ModelProto, data: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Return a model's outputs by onnxruntime, without its optimisations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, data)


def _computed(state: Draw, since: int) -> dict[str, np.ndarray]:
    """Return the results of the nodes since one; nothing if they fail, or are large, empty, or not finite."""
    nodes = state.nodes[since:]
    outputs = [name for each in nodes for name in each.output]
    inputs = list(dict.fromkeys(name for name in _read(nodes) if name in state.values))
    try:
        made = answers(state.model(inputs, outputs, nodes), {name: state.values[name] for name in inputs})
    except Exception:  # noqa: BLE001 - onnxruntime has many kinds
        return {}
    for each in made:
        if not 0 < each.size <= _MOST_ELEMENTS or each.ndim > 6:
            return {}
        if each.dtype.kind == "f" and not np.all(np.abs(each) < _MOST):
            return {}
    return dict(zip(outputs, made, strict=True))


def _read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for each in nodes:
        yield from each.input
        for attribute in each.attribute:
            yield from _read(attribute.g.node)  # of a branch


def _described(name: str, value: np.ndarray | None) -> onnx.ValueInfoProto:
    if value is None:
        return helper.make_empty_tensor_value_info(name)
    kind = helper.np_dtype_to_tensor_dtype(value.dtype) if value.dtype != object else TensorProto.STRING
    return helper.make_tensor_value_info(name, kind, value.shape)
