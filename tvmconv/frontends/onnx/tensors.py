"""Tensors of an ONNX graph: their readers, and the values of fixed ones."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import numpy_helper

from ...errors import SourceError
from .graph import OURS, Place, sizes_of, subgraphs, used_names_of

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# Reader of the graph's outputs.
OUTSIDE = -1


class Tensors:
    """Tensors of the graph with a convolution, and of its outer graphs.

    Parameters
    ----------
    folder
        The folder of external weights.

    Attributes
    ----------
    nodes : list of NodeProto
        The graph's nodes, in topological order.
    taken
        The convolution whose kernel computes each sum, by their names.
    """

    def __init__(self, model: ModelProto, place: Place, folder: Path) -> None:
        self.nodes = list(place.graphs[-1].node)
        self._folder = folder
        self._opsets = {each.domain: each.version for each in model.opset_import}
        self._scope = place.scope
        self._weights = {weight.name: weight for graph in place.graphs for weight in graph.initializer}
        self._makers = {name: node for graph in place.graphs for node in graph.node for name in node.output if name}
        self._values: dict[str, np.ndarray] = {}
        self._fixed = set(self._weights)
        for node in (node for graph in place.graphs for node in graph.node):
            is_random = node.op_type.startswith("Random") or node.op_type in ("Bernoulli", "Multinomial")
            if is_random or any(True for _ in subgraphs(node)) or node.domain not in OURS:
                continue
            if all(name in self._fixed for name in node.input if name) or self._sizes(node) is not None:
                self._fixed.update(name for name in node.output if name)
        self._readers: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in used_names_of(node):
                self._readers.setdefault(name, []).append(i)
        for value in place.graphs[-1].output:
            self._readers.setdefault(value.name, []).append(OUTSIDE)
        self.taken: dict[str, str] = {}

    def readers(self, name: str) -> list[int]:
        """Return the indices in `nodes` of a tensor's readers, repeated for repeated reads, and OUTSIDE for a graph output."""
        return self._readers.get(name, [])

    def maker(self, name: str) -> NodeProto | None:
        """Return the node that computes a tensor; None: it is an input or a constant."""
        return self._makers.get(name)

    def is_fixed(self, name: str) -> bool:
        """Return whether a tensor depends on no input, without computing it."""
        return name in self._fixed

    def value(self, name: str) -> np.ndarray:
        """Return the value of a fixed tensor.

        Raises
        ------
        SourceError
            If its file cannot be read, or it cannot be computed.
        """
        if name not in self._values:
            self._values[name] = self._weight(name) if name in self._weights else self._computed(name)
        return self._values[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a fixed tensor."""
        if name in self._weights:
            return tuple(self._weights[name].dims)
        known = self._scope[name].shape if name in self._scope else None
        shape = tuple(dim for dim in known or () if isinstance(dim, int))
        return shape if known is not None and len(shape) == len(known) else self.value(name).shape

    def number(self, name: str, rank: int) -> float | None:
        """Return the number of a fixed tensor of one element and at most `rank` dimensions; None for another tensor."""
        if not self.is_fixed(name) or len(self.shape(name)) > rank or prod(self.shape(name)) != 1:
            return None
        return float(self.value(name).astype(np.float64).item())

    def _sizes(self, node: NodeProto) -> np.ndarray | None:
        value = self._scope.get("".join(node.input[:1]))
        return None if value is None else sizes_of(node, value.shape)

    def _weight(self, name: str) -> np.ndarray:
        try:
            return numpy_helper.to_array(self._weights[name], base_dir=str(self._folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise SourceError(f"the weights {name!r} cannot be read: {error}") from error

    def _computed(self, name: str) -> np.ndarray:
        from onnx.reference import ReferenceEvaluator

        node = self._makers[name]
        sizes = self._sizes(node)
        if sizes is not None:
            return sizes
        feeds = {each: self.value(each) for each in node.input if each}
        try:
            results = ReferenceEvaluator(node, opsets=self._opsets).run(None, feeds)
        except Exception as error:  # of any kind, whatever its operators raise
            raise SourceError(f"ONNX's evaluator cannot compute the fixed tensor {name!r}: {error}") from error
        return np.asarray(results[list(node.output).index(name)])
