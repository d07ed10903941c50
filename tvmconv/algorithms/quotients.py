"""Check for quotients that TVM 0.27 simplifies wrongly: those whose numerator falls as an index grows.

Its `iter_map_simplify`, used to flatten buffers among other things, turns ``(11 - i // 20) // 8`` into ``i // -160 + 1``: the
kernel then stores beyond its output. With a rising numerator, ``-((i // 20 - 11) // 8)``, rounded to the other side
where that matters, quotients stay correct. Operands of `max`, `min` and conditions are not simplified.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tvm import tirx
from tvm_ffi.structural import structural_walk

from ..errors import CompilationError


def check_quotients(expressions: Iterable[Any]) -> None:
    """Raise CompilationError for the first quotient or remainder with a falling numerator in statements or expressions."""
    found: list[Any] = []
    for expression in expressions:
        structural_walk(expression, [(kind, found.append) for kind in (tirx.FloorDiv, tirx.FloorMod)])
    for quotient in found:
        if _falls(quotient.a, 1):
            raise CompilationError(
                f"TVM 0.27 simplifies {quotient} wrongly: its numerator must not fall as an index grows"
            )


def _falls(numerator: Any, sign: int) -> bool:
    """Return whether `sign` times an expression falls as a variable grows; False for expressions that TVM does not simplify."""
    if isinstance(numerator, tirx.Var):
        return sign < 0
    if isinstance(numerator, tirx.Add):
        return _falls(numerator.a, sign) or _falls(numerator.b, sign)
    if isinstance(numerator, tirx.Sub):
        return _falls(numerator.a, sign) or _falls(numerator.b, -sign)
    if isinstance(numerator, tirx.Mul):
        factors = sorted((numerator.a, numerator.b), key=lambda factor: isinstance(factor, tirx.IntImm))
        factor = factors[1].value if isinstance(factors[1], tirx.IntImm) else 0
        return factor != 0 and _falls(factors[0], sign if factor > 0 else -sign)
    if isinstance(numerator, tirx.FloorDiv | tirx.FloorMod):
        return _falls(numerator.a, sign)
    return False
