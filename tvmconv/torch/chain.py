"""`NetworkChain`: a model's networks without operators of PyTorch between them, each called with results of earlier ones."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import fx, nn

from ..errors import BundleError, UnsupportedMachineError
from .calling import NetworkCall


class ChainPart(NetworkCall):
    """Network within a graph: a single output is not in a list."""

    def forward(self, *tensors: Any) -> Any:
        """Return the network's outputs."""
        answers = super().forward(*tensors)
        return answers[0] if len(answers) == 1 else answers

    def __reduce__(self) -> Any:
        """Copies in other processes load the file."""
        return _part, (type(self), str(self.path.absolute()), *self.orders)


class Sliced(ChainPart):
    """Network for a few images, called with one slice of a batch after the other."""

    def forward(self, *tensors: Any) -> Any:
        """Return the network's outputs for all images."""
        answers = self.sliced(tensors)
        return answers[0] if len(answers) == 1 else answers


class Lost(nn.Module):  # type: ignore[misc]
    """Placeholder for a network whose library is missing or unusable."""

    def __init__(self, why: str) -> None:
        super().__init__()
        self.why = why


def _part(kind: type[ChainPart], path: str, *orders: Any) -> nn.Module:
    try:
        return kind(path, *orders)
    except (BundleError, UnsupportedMachineError) as error:
        return Lost(str(error))


class NetworkChain(nn.Module):  # type: ignore[misc]
    """Networks, called one after the other."""

    def __init__(self, folder: Path, wiring: Mapping[str, Any]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(part(folder, *each["part"]) for each in wiring["calls"])
        self._forwards = [each.forward for each in self.parts]  # cheaper than calls as modules
        self._reads, self._gives = [each["reads"] for each in wiring["calls"]], wiring["gives"]

    def only(self) -> Any:
        """Return the call of the only network, if it has the chain's inputs and outputs; else None."""
        (reads, *others), count = self._reads, len(self._reads[0])
        is_only = (
            not others and isinstance(self.parts[0], ChainPart) and reads == [*range(count)] and self._gives == [count]
        )
        return self._forwards[0] if is_only else None

    def takes(self, tensors: Sequence[Any]) -> bool:
        """Return whether extents are free and those of the tensors are allowed."""
        (first, *others), (reads, *_) = self.parts, self._reads
        return not others and isinstance(first, NetworkCall) and first.takes([tensors[each] for each in reads])

    def forward(self, *tensors: Any) -> list[Any]:
        """Return the outputs of the chain of networks."""
        values = list(tensors)
        for forward, reads in zip(self._forwards, self._reads, strict=True):
            made = forward(*[values[each] for each in reads])
            values += made if isinstance(made, list) else [made]
        return [values[each] for each in self._gives]


def part(folder: Path, file: str, is_sliced: bool, *orders: Sequence[Sequence[int]]) -> ChainPart:
    """Return a network of a folder."""
    return (Sliced if is_sliced else ChainPart)(folder / file, *orders)


def wiring(graph: fx.Graph, parts: Mapping[str, Sequence[Any]]) -> dict[str, Any] | None:
    """Return how a graph calls networks, with values numbered from the graph's inputs on; None if it has other operators.

    Parameters
    ----------
    parts
        Arguments of :func:`part` after the folder, by the names of the graph's modules.
    """
    numbers: dict[Any, int] = {}
    calls, gives, count = [], [], 0
    for node in graph.nodes:
        if node.op == "call_function" and node.target is operator.getitem:
            numbers[node] = numbers[node.args[0]] + node.args[1]
            continue
        reads = node.args[0] if node.op == "output" else node.args
        if node.op not in ("placeholder", "call_module", "output") or not all(
            isinstance(each, fx.Node) and each in numbers for each in reads
        ):
            return None
        read = [numbers[each] for each in reads]
        numbers[node] = count
        if node.op == "output":
            gives = read
        elif node.op == "placeholder":
            count += 1
        else:
            calls.append({"part": parts[node.target], "reads": read})
            count += len(parts[node.target][-1])
    return {"calls": calls, "gives": gives}
