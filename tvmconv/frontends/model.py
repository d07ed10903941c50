"""Content of a source: its convolutions as problems, and the skipped ones with the reasons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..family import ProblemFamily
from ..problem import Problem

if TYPE_CHECKING:
    from numpy import ndarray


@dataclass(frozen=True)
class Constants:
    """The constant inputs of a node, in ONNX's layouts.

    Parameters
    ----------
    filter
        (O, I, k...), of the model's type.
    bias
        (M,), or None.
    output
        Name of the kernel's output tensor: the node's output, or that of the last node after it that was folded or became
        its epilogue.
    scale, slope
        (M,), f32: the epilogue's operands; None: it has none.
    """

    filter: ndarray
    bias: ndarray | None
    output: str
    scale: ndarray | None = None
    slope: ndarray | None = None


@dataclass(frozen=True)
class SourceNode:
    """A convolution of a source at one shape.

    Parameters
    ----------
    name
        The name of the model's node, the position of a file's table, or the signature itself.
    problem
        Its problem.
    constants
        Returns the arrays that the model fixes. None: there are none, or they were not requested.
    serves
        The names of the model's nodes that its kernel computes: the convolution first, then those that were folded into
        it or became its epilogue.
    residual
        The name of the tensor that its epilogue adds, if it adds one.
    pads
        The convolution's pads in the source (a problem has only those that taps read): at the begin and the end of each axis,
        or their rule, ``"same_upper"`` or ``"same_lower"``; empty: those of the problem.
    family
        The family of its problems at other extents; None: it was read at one size.
    """

    name: str
    problem: Problem
    constants: Callable[[], Constants] | None = field(default=None, compare=False)
    serves: tuple[str, ...] = ()
    residual: str | None = None
    pads: str | tuple[tuple[int, ...], tuple[int, ...]] = ""
    family: ProblemFamily | None = None

    def __post_init__(self) -> None:
        if not self.serves:
            object.__setattr__(self, "serves", (self.name,))


@dataclass(frozen=True)
class Skipped:
    """A convolution of a model that no kernel can be built for.

    Parameters
    ----------
    name
        The name of its node.
    op_type
        Its operation, as the model calls it.
    reason
        The reason.
    cause
        The cause and a remedy, equal for all nodes with the same cause; may be empty.
    """

    name: str
    op_type: str
    reason: str
    cause: str = ""

    def __str__(self) -> str:
        return f"{self.op_type} node {self.name!r}: {self.reason}{'. ' * bool(self.cause)}{self.cause}"


@dataclass(frozen=True)
class Use:
    """A distinct problem of a source, and its places there.

    Parameters
    ----------
    problem
        The problem, with the overrides applied.
    places
        The names of the model's nodes, the positions of a file's tables, or the signature itself.
    """

    problem: Problem
    places: tuple[str, ...]


@dataclass(frozen=True)
class Model:
    """The convolutions of a source, in its order. Made by :func:`tvmconv.frontends.read_model`.

    Parameters
    ----------
    source
        Its path, or the signature.
    nodes
        The convolutions of known shapes; a node occurs once for each of its shapes.
    skipped
        The other convolutions.
    is_model
        Whether the source is a model rather than a list of problems.
    """

    source: str
    nodes: tuple[SourceNode, ...]
    skipped: tuple[Skipped, ...] = ()
    is_model: bool = False

    def uses(self) -> list[Use]:
        """Return the distinct problems, in the order in which they first appear."""
        places: dict[Problem, list[str]] = {}
        for node in self.nodes:
            places.setdefault(node.problem, []).append(node.name)
        return [Use(problem, tuple(names)) for problem, names in places.items()]

    def problems(self) -> list[Problem]:
        """Return the distinct problems alone."""
        return [use.problem for use in self.uses()]

    def summary(self) -> str:
        """Return ``64 convolutions, 35 kernels, 2 skipped``."""
        names = {node.name for node in self.nodes} | {skipped.name for skipped in self.skipped}
        skipped = f", {len(self.skipped)} skipped" if self.skipped else ""
        return f"{_count(len(names), 'convolution')}, {_count(len(self.problems()), 'kernel')}{skipped}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
