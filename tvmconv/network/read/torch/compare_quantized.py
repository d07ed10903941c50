"""Comparison of a quantized program with PyTorch, quantizer by quantizer, like that of ONNX files with onnxruntime.

PyTorch computes the input of each quantizer from the network's integers of the quantizers before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx
from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument

from ....accuracy import describe_differences
from ....frontends.torch.nodes import arguments, name_of
from ..misrounding import describe_misrounding
from .decompose import decompose
from .quantized import QUANTIZERS

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ....runtime.networks.tensors import Array


def is_quantized(program: ExportedProgram) -> bool:
    """Return whether a program rounds to integers of 8 bits."""
    return any(map(_is_quantizer, program.graph.nodes))


def with_quantized(program: ExportedProgram) -> ExportedProgram:
    """Return a decomposed program with its quantizers' results as additional outputs."""
    made = decompose(program)
    output, added = made.graph.output_node(), list(filter(_is_quantizer, made.graph.nodes))
    output.args = ((*output.args[0], *added),)
    made.graph_signature.output_specs.extend(
        OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=node.name), None) for node in added
    )
    return made


def find_wrong_quantizers(program: ExportedProgram, tensors: Sequence[Any], taken: Sequence[Array]) -> list[str]:
    """Describe the quantizers and outputs of a network that differ from PyTorch's, each computed from the network's own quantizers before it.

    Parameters
    ----------
    program
        The program.
    tensors
        Its inputs.
    taken
        The network's outputs for them, followed by the results of its quantizers.
    """
    program = decompose(program)
    count = len(program.graph.output_node().args[0])
    given = _Given(program.module(), iter(taken[count:]))
    with torch.no_grad():
        outputs = given.run(*tensors, enable_io_processing=False)
    right = [(each.float() if each.dtype == torch.bfloat16 else each).numpy() for each in outputs]
    return given.wrong + describe_differences({f"output{at}": each for at, each in enumerate(taken[:count])}, right)


class _Given(fx.Interpreter):  # type: ignore[misc]
    """Interpreter of a program that uses the integers of a network's quantizers."""

    def __init__(self, module: Any, taken: Iterator[Array]) -> None:
        super().__init__(module)
        self._taken = taken
        self.wrong: list[str] = []

    def run_node(self, n: fx.Node) -> Any:
        """Return a node's result; for a quantizer, the network's."""
        if not _is_quantizer(n):
            return super().run_node(n)
        got, named = next(self._taken), arguments(n)
        values, scale, zero, *_ = fx.map_arg(tuple(named.values()), self.env.get)
        self.wrong += describe_misrounding(
            n.name,
            got,
            values.float().numpy(),
            torch.as_tensor(scale).numpy(),
            torch.as_tensor(zero).numpy(),
            named.get("axis", 0),
            (named["quant_min"], named["quant_max"]),
        )
        return torch.from_numpy(got)


def _is_quantizer(node: fx.Node) -> bool:
    return name_of(node) in QUANTIZERS and name_of(node).startswith("quantize")
