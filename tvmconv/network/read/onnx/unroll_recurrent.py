"""ONNX's GRU, LSTM and RNN with activations or types that loops lack (`recurrent.py`), unrolled step by step.

One product computes the inputs' part of all steps; each step then has a product with its state. Their matrices are fixed, so kernels
compute them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from onnx import helper

from ....frontends.onnx.graph import attributes_of
from ....frontends.onnx.weights import array_of
from ....frontends.onnx.writer import NodeWriter

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = npt.NDArray[Any]
# Number of gates, and the default activations.
GATES = {"GRU": 3, "LSTM": 4, "RNN": 1}
ACTIVATIONS = {"GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"], "RNN": ["Tanh"]}
_INPUTS = {"GRU": 6, "LSTM": 8, "RNN": 6}
# Activations that are also operators, with the same default parameters.
_OPERATORS = {"Elu", "HardSigmoid", "LeakyRelu", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh", "ThresholdedRelu"}


def check_recurrent(node: NodeProto, data: tuple[int, ...], model: ModelProto) -> None:
    """Check that a node's variant is supported; remove sequence lengths that equal the data's.

    Raises
    ------
    ValueError
        If it is not; the message continues "the node ...".
    """
    given, inputs = attributes_of(node), [*node.input, *[""] * 8]
    if given.get("clip") or given.get("layout") or given.get("input_forget"):
        raise ValueError("clips its sums, couples its gates, or is batch-first")
    lengths = next((array_of(each) for each in model.graph.initializer if each.name == inputs[4]), None)
    if lengths is not None and data and data[0] and (lengths == data[0]).all():
        node.input[4] = inputs[4] = ""
    if inputs[4] or inputs[7]:
        raise ValueError("has sequence lengths or peepholes")


def unroll(node: NodeProto, data: tuple[int, ...], model: ModelProto) -> list[NodeProto]:
    """Return the nodes for a GRU, an LSTM or an RNN; their constants are added to the model.

    Raises
    ------
    ValueError
        If this use of the operator is not supported; the message continues "the node ...".
    """
    given = attributes_of(node)
    inputs = dict(enumerate(node.input)) | dict.fromkeys(range(len(node.input), _INPUTS[node.op_type]), "")
    directions = 2 if given.get("direction", "forward") == "bidirectional" else 1
    constants = {each.name: each for each in model.graph.initializer}
    activations = _check(node.op_type, given, data, directions)
    arrays = [array_of(constants[inputs[place]]) if inputs[place] in constants else None for place in (1, 2, 3)]
    weights, recurrent, bias = arrays
    if weights is None or recurrent is None or (inputs[3] and bias is None):
        raise ValueError("has weights that are not fixed")
    size = recurrent.shape[-1]
    if bias is None:
        bias = np.zeros((directions, 2 * GATES[node.op_type] * size), weights.dtype)
    write = _Writer(node, model, data[0], data[1], size)
    finals = []
    rows = []
    for number in range(directions):
        write.activations = activations[number]
        backward = number == 1 or given.get("direction") == "reverse"
        states = [
            write.initial(inputs[place], number, weights.dtype) for place in (5, 6)[: 1 + (node.op_type == "LSTM")]
        ]
        steps, last = write.direction(
            number,
            weights[number],
            recurrent[number],
            bias[number],
            states,
            backward,
            bool(given.get("linear_before_reset")),
        )
        rows.append(steps)
        finals.append(last)
    write.outputs(node, rows, finals)
    return write.nodes


def _check(kind: str, given: dict[str, Any], data: tuple[int, ...], directions: int) -> list[list[str]]:
    """Return the activations of each direction."""
    names = [each.decode() for each in given.get("activations", [])] or ACTIVATIONS[kind] * directions
    if not _OPERATORS.issuperset(names) or "activation_alpha" in given or "activation_beta" in given:
        raise ValueError(
            f"has the activations {', '.join(names)}; supported are {', '.join(sorted(_OPERATORS))}, without parameters"
        )
    if len(data) != 3 or not all(data):
        raise ValueError("takes data of unknown shape")
    count = len(ACTIVATIONS[kind])
    return [names[begin : begin + count] for begin in range(0, count * directions, count)]


class _Writer(NodeWriter):
    """Writer of the steps' nodes."""

    def __init__(self, node: NodeProto, model: ModelProto, steps: int, batch: int, size: int) -> None:
        super().__init__(node, model)
        self._kind, self._data = node.op_type, node.input[0]
        self.activations = ACTIVATIONS[node.op_type]
        self._steps, self._batch, self._size = steps, batch, size

    def initial(self, name: str, number: int, dtype: Any) -> str:
        """Return the initial state of a direction."""
        if not name:
            return self.constant(np.zeros((self._batch, self._size), dtype))
        return self.op("Gather", name, self.constant(np.array(number)), axis=0)

    def direction(
        self,
        number: int,
        weights: Array,
        recurrent: Array,
        bias: Array,
        states: list[str],
        backward: bool,
        linear: bool,
    ) -> tuple[list[str], list[str]]:
        """Return a direction's outputs in order of the steps, and its last states."""
        before, after = np.split(bias, 2)
        joined = self._kind == "LSTM" or not linear
        size = self._size
        # A linear GRU adds the bias of the candidate gate's state before the reset gate multiplies it, others after.
        of_state = np.zeros_like(after)
        if self._kind == "GRU" and linear:
            of_state[2 * size :] = after[2 * size :]
        added = before + after - of_state
        projected = self.op("Add", self.op("MatMul", self._data, self.constant(weights.T.copy())), self.constant(added))
        matrix = self.constant(recurrent.T.copy())
        parts = self.constant(recurrent[: 2 * size].T.copy()), self.constant(recurrent[2 * size :].T.copy())
        steps: dict[int, str] = {}
        for step in reversed(range(self._steps)) if backward else range(self._steps):
            row = self.op("Gather", projected, self.constant(np.array(step)), axis=0)
            if self._kind == "LSTM":
                states = self._lstm(row, matrix, states)
            elif self._kind == "RNN":
                total = self.op("Add", row, self.op("MatMul", states[0], matrix))
                states = [self.op(self.activations[0], total)]
            elif joined:
                states = [self._gru(row, parts, states[0])]
            else:
                states = [self._linear_gru(row, matrix, of_state, states[0])]
            steps[step] = states[0]
        return [steps[step] for step in range(self._steps)], states

    def outputs(self, node: NodeProto, rows: list[list[str]], finals: list[list[str]]) -> None:
        """Write the node's outputs: all steps, and the last states."""
        names = [*node.output, "", "", ""]
        shape = self.constant(np.array([1, 1, self._batch, self._size]))
        if names[0]:
            joined = [self.op("Concat", *(self.op("Reshape", step, shape) for step in steps), axis=0) for steps in rows]
            self.nodes.append(helper.make_node("Concat", joined, [names[0]], node.name, axis=1))
        shape = self.constant(np.array([1, self._batch, self._size]))
        for place, name in enumerate(names[1:3]):
            if name:
                wide = [self.op("Reshape", last[place], shape) for last in finals]
                self.nodes.append(helper.make_node("Concat", wide, [name], axis=0))

    def _lstm(self, row: str, matrix: str, states: list[str]) -> list[str]:
        hidden, cell = states
        total = self.op("Add", row, self.op("MatMul", hidden, matrix))
        of_gates, of_cell, of_output = self.activations
        enter, leave, forget, made = self._split(total, 4)
        kept = self.op("Mul", self.op(of_gates, forget), cell)
        cell = self.op("Add", kept, self.op("Mul", self.op(of_gates, enter), self.op(of_cell, made)))
        return [self.op("Mul", self.op(of_gates, leave), self.op(of_output, cell)), cell]

    def _gru(self, row: str, parts: tuple[str, str], hidden: str) -> str:
        update, reset, made = self._split(row, 3)
        of_update, of_reset = self._split(self.op("MatMul", hidden, parts[0]), 2)
        reset = self.op(self.activations[0], self.op("Add", reset, of_reset))
        made = self.op("Add", made, self.op("MatMul", self.op("Mul", reset, hidden), parts[1]))
        return self._mixed(self.op(self.activations[0], self.op("Add", update, of_update)), made, hidden)

    def _linear_gru(self, row: str, matrix: str, bias: Array, hidden: str) -> str:
        update, reset, made = self._split(row, 3)
        total = self.op("Add", self.op("MatMul", hidden, matrix), self.constant(bias))
        of_update, of_reset, of_made = self._split(total, 3)
        reset = self.op(self.activations[0], self.op("Add", reset, of_reset))
        made = self.op("Add", made, self.op("Mul", reset, of_made))
        return self._mixed(self.op(self.activations[0], self.op("Add", update, of_update)), made, hidden)

    def _mixed(self, update: str, made: str, hidden: str) -> str:
        """Return ``(1 - z) * activation(made) + z * h``."""
        made = self.op(self.activations[1], made)
        return self.op("Add", made, self.op("Mul", update, self.op("Sub", hidden, made)))

    def _split(self, data: str, count: int) -> Iterator[str]:
        for part in range(count):
            rows = np.arange(part * self._size, (part + 1) * self._size)
            yield self.op("Gather", data, self.constant(rows), axis=-1)
