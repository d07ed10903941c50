"""Approximate steps of epilogues, for values that are rounded to f16 or bf16 at once: within 2**-14 of the formula.

That is less than half of f16's rounding error, in about half the operations of f32's steps (step_arithmetic.py).
"""

from __future__ import annotations

from math import log
from typing import Any

from .step_arithmetic import DOWN, LEAST_GELU_TANH, MOST_GELU, MOST_GELU_TANH, ROUND, TANH_1, TANH_3, UP, Vector

# The highest first: 2**r, r up to 1/2; and log2(erfc(a / sqrt(2)) / 2) by a - 7, a up to 14.5. Fitted by least squares, weighted
# until the largest relative error of the power was least (3e-6, 5e-5).
_EXP2 = (9.5701018e-3, 5.591786e-2, 0.24024745, 0.69312181, 0.99999926)
_LOG_TAIL = (
    -1.4180356e-9, 2.1457517e-8, -8.2312001e-8, 4.0976975e-7, -1.001364e-5,
    1.1522083e-4, -1.1307708e-3, -0.70823793, -10.297288, -39.507141,
)  # fmt: skip
_MIDDLE = 7.0


class ShortVector(Vector):
    """Arithmetic on the lanes of one value that becomes one of 16 bits."""

    def _gelu(self) -> Any:
        """``max(x, 0) - a * q``, q = erfc(a / sqrt(2)) / 2 of a = abs(x), by its logarithm: that needs no division."""
        a = self._magnitude(MOST_GELU)
        power = self._exp2(self._polynomial(self._named(a - self._const(_MIDDLE)), _LOG_TAIL), UP)
        return self._fma(a * power, self._const(-DOWN), self._positive())

    def _gelu_tanh(self) -> Any:
        """``x / (1 + e**-v)``, v = x * (c1 + c3*x*x)."""
        x = self._clip(self.x, LEAST_GELU_TANH, MOST_GELU_TANH)
        return self._gated(x, LEAST_GELU_TANH, x * self._fma(x * x, self._const(TANH_3), self._const(TANH_1)))

    def _exp(self, x: Any, up: int, low: Any = None) -> Any:
        """Return ``e**x * 2**up``, which must be a normal number."""
        return self._exp2(x * self._const(1 / log(2)), up)

    def _exp2(self, x: Any, up: int) -> Any:
        """Return ``2**(x + up)``, which must be a normal number."""
        x, shift = self._named(x), self._const(ROUND + up)
        rounded = self._named(x + shift)
        return self._scaled(self._polynomial(self._named(x - (rounded - shift)), _EXP2), rounded)
