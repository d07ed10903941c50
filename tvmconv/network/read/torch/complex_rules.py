"""Compute operators on complex tensors from their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from ....frontends.torch.nodes import Nodes, Parts
from .fourier import FOURIER

aten = torch.ops.aten
Rule = Callable[..., Any]


def _product(nodes: Nodes, left: Parts, right: Parts, by: Callable[[Any, Any], Any]) -> Parts:
    """Return a product of any kind by four products of parts, or two if one factor is real."""
    if left.imaginary is None and right.imaginary is None:
        return Parts(by(left.real, right.real), None)
    if right.imaginary is None:
        return Parts(by(left.real, right.real), by(left.imaginary, right.real))
    if left.imaginary is None:
        return Parts(by(left.real, right.real), by(left.real, right.imaginary))
    sub, add = aten.sub.Tensor, aten.add.Tensor
    real = nodes.call(sub, by(left.real, right.real), by(left.imaginary, right.imaginary))
    return Parts(real, nodes.call(add, by(left.real, right.imaginary), by(left.imaginary, right.real)))


def _times(nodes: Nodes, one: Any, other: Any) -> Any:
    if not isinstance(one, fx.Node):
        one, other = other, one
    return nodes.call(aten.mul.Tensor, one, other)


def _multiply(nodes: Nodes, self: Parts, other: Parts) -> Parts:
    return _product(nodes, self, other, lambda one, another: _times(nodes, one, another))


def _by_matrices(name: str) -> Rule:
    target: Any = getattr(aten, name.removesuffix(".default")).default

    def rule(nodes: Nodes, self: Parts, **others: Parts) -> Parts:
        (other,) = others.values()
        return _product(nodes, self, other, lambda one, another: nodes.call(target, one, another))

    return rule


def _sum(sign: int) -> Rule:
    def rule(nodes: Nodes, self: Parts, other: Parts, alpha: Any = 1) -> Parts | None:
        if alpha != 1 or not isinstance(self.real, fx.Node):
            return None
        target = aten.add.Tensor if sign > 0 else aten.sub.Tensor
        real = nodes.call(target, self.real, other.real)
        imaginary: Any = None
        if other.imaginary is None:
            imaginary = self.imaginary
        elif self.imaginary is None:
            imaginary = other.imaginary if sign > 0 else _negative(nodes, other.imaginary)
        else:
            imaginary = nodes.call(target, self.imaginary, other.imaginary)
        if imaginary is None:
            return Parts(real, None)
        if not isinstance(imaginary, fx.Node):
            imaginary = nodes.call(aten.full_like.default, real, imaginary)
        return Parts(real, nodes.expanded(imaginary, nodes.shape(real)))

    return rule


def _negative(nodes: Nodes, value: Any) -> Any:
    return nodes.call(aten.neg.default, value) if isinstance(value, fx.Node) else -value


def _quotient(nodes: Nodes, self: Parts, other: Parts) -> Parts:
    if other.imaginary is None:
        return Parts(*(nodes.call(aten.div.Tensor, part, other.real) for part in self))
    return _multiply(nodes, self, _reciprocal(nodes, other))


def _reciprocal(nodes: Nodes, self: Parts) -> Parts:
    size = _square(nodes, self)
    return Parts(*(nodes.call(aten.div.Tensor, part, size) for part in _conjugate(nodes, self)))


def _square(nodes: Nodes, self: Parts) -> Any:
    return nodes.call(aten.add.Tensor, *(_times(nodes, part, part) for part in self))


def _conjugate(nodes: Nodes, self: Parts) -> Parts:
    return Parts(self.real, _negative(nodes, self.imaginary))


def _size(nodes: Nodes, self: Parts) -> Any:
    return nodes.call(aten.sqrt.default, _square(nodes, self))


def _copy(nodes: Nodes, self: Parts, src: Parts, non_blocking: bool) -> Parts:
    shape = nodes.shape(self.real)
    return Parts(*(None if part is None else nodes.expanded(part, shape) for part in src))


def _power(nodes: Nodes, self: Parts, exponent: Any) -> Parts | None:
    return _multiply(nodes, self, self) if exponent == 2 else None


def _on_circle(nodes: Nodes, abs: Parts, angle: Parts) -> Parts:
    functions = (aten.cos.default, aten.sin.default)
    return Parts(*(_times(nodes, abs.real, nodes.call(each, angle.real)) for each in functions))


def _exponential(nodes: Nodes, self: Parts) -> Parts:
    return _on_circle(nodes, Parts(nodes.call(aten.exp.default, self.real), None), Parts(self.imaginary, None))


def _read(nodes: Nodes, self: Parts) -> Any:
    return nodes.call(aten.stack.default, list(self), -1)


def _view(nodes: Nodes, self: Parts) -> Parts:
    return Parts(*(nodes.call(aten.select.int, self.real, -1, part) for part in (0, 1)))


_MATRICES = tuple(f"{name}.default" for name in ("mm", "bmm", "matmul"))
RULES: Mapping[str, Rule] = {
    "mul.Tensor": _multiply,
    "add.Tensor": _sum(1),
    "sub.Tensor": _sum(-1),
    "div.Tensor": _quotient,
    "reciprocal.default": _reciprocal,
    "pow.Tensor_Scalar": _power,
    "copy.default": _copy,
    "exp.default": _exponential,
    "abs.default": _size,
    "angle.default": lambda nodes, self: nodes.call(aten.atan2.default, self.imaginary, self.real),
    "_conj.default": _conjugate,
    "conj_physical.default": _conjugate,
    "_conj_physical.default": _conjugate,
    "resolve_conj.default": lambda nodes, self: self,
    "polar.default": _on_circle,
    "complex.default": lambda nodes, real, imag: Parts(real.real, imag.real),
    "view_as_real.default": _read,
    "view_as_complex.default": _view,
    **{name: _by_matrices(name) for name in _MATRICES},
    **FOURIER,
}
# Operators whose rules accept tensors without an imaginary part.
OF_REAL = {
    "copy.default",
    "mul.Tensor",
    "add.Tensor",
    "sub.Tensor",
    "complex.default",
    "polar.default",
    "view_as_complex.default",
    *_MATRICES,
    *FOURIER,
}
