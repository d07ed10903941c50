"""`report`: which library computes each operator of an optimized model, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from torch import nn

from ..errors import InputError
from ..runtime.networks.network import Network
from .answering import REFUSED, Answering, answering_of
from .computed import OperatorRow

_HEAD = ("layer", "computes", "output", "by", "why")


@dataclass(frozen=True)
class KernelRow:
    """One convolution or product of a network.

    Attributes
    ----------
    network
        The network's library.
    signature
        The problem, with what follows it as its epilogue; empty if no kernel of ours computes it.
    algorithm
        The kernel's.
    why
        Why no kernel of ours computes it; empty if one does.
    """

    network: str
    signature: str
    algorithm: str
    why: str


@dataclass
class Report(Sequence[OperatorRow]):
    """Rows for the operators, which print as a table.

    Attributes
    ----------
    rows
        A row for each operator of each example; a module's path precedes the paths of its submodules.
    kernels
        The networks' convolutions and products.
    joined
        A line for each place with joined filters, by the networks' libraries.
    refused
        Reasons why modules' own code runs, by their paths; the model's own path is empty.
    calls
        Reasons why modules' own code answered calls, by the paths of modules that networks answer.
    """

    rows: list[OperatorRow] = field(default_factory=list)
    kernels: list[KernelRow] = field(default_factory=list)
    joined: dict[str, list[str]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)

    def __getitem__(self, index: int) -> OperatorRow:  # type: ignore[override]
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        cells = [_HEAD, *self._cells()]
        widths = [max(len(line[column]) for line in cells) for column in range(len(_HEAD))]
        lines = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in cells]
        return "\n".join([*lines, *self._notes()])

    def _repr_html_(self) -> str:
        """Return the same for a notebook."""

        def line(cells: Sequence[str], tag: str) -> str:
            return "<tr>" + "".join(f"<{tag}>{escape(each)}</{tag}>" for each in cells) + "</tr>"

        rows = "".join(line(each, "td") for each in self._cells())
        notes = "".join(f"<li>{escape(each)}</li>" for each in self._notes())
        return f"<table><thead>{line(_HEAD, 'th')}</thead><tbody>{rows}</tbody></table><ul>{notes}</ul>"

    def _cells(self) -> list[tuple[str, ...]]:
        return [(row.layer, row.computes, row.output, row.by, row.why) for row in self.rows]

    def _notes(self) -> list[str]:
        """Return a line for each kernel, for joined filters, and for the operators and calls of PyTorch."""
        lines = [f"{each.network}: {each.signature or each.why}  {each.algorithm}".rstrip() for each in self.kernels]
        lines += [f"{network}: joined: {line}" for network, joined in self.joined.items() for line in joined]
        lines += [f"PyTorch runs {path or 'the model'}: {why}" for path, why in self.refused.items()]
        lines += [
            f"PyTorch answered calls of {path or 'the model'}: {why}"
            for path, whys in self.calls.items()
            for why in whys
        ]
        return lines


def report(model: nn.Module) -> Report:
    """Return which library computes each operator of a model from :func:`tvmconv.torch.optimize`.

    Raises
    ------
    InputError
        If it did not return the model.
    """
    found = Report(refused=dict(vars(model).get(REFUSED, {})) if isinstance(model, nn.Module) else {})
    for each in _answering(model):
        for how in each.computed():
            found.rows += how.rows_at(each.path)
            found.kernels += [
                KernelRow(network.file.path.name, row["signature"], row["algorithm"], row["why"])
                for network in how.networks
                for row in network.description["report"]
            ]
            found.joined |= {
                network.file.path.name: rewrites
                for network in how.networks
                if (rewrites := network.description.get("rewrites"))  # absent from older libraries
            }
        if each.refused:
            found.calls[each.path] = list(each.refused)
    return found


def networks(model: nn.Module) -> list[Network]:
    """Return the networks of a model that :func:`tvmconv.torch.optimize` returned, which time their steps (``operators``).

    Raises
    ------
    InputError
        If it did not return the model.
    """
    return [network for each in _answering(model) for how in each.computed() for network in how.networks]


def _answering(model: Any) -> list[Answering]:
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; give what tvmconv.torch.optimize returned")
    found = [each for module in model.modules() if (each := answering_of(module)) is not None]
    if not found:
        raise InputError("tvmconv.torch.optimize did not return this model; give what it returned")
    return found
