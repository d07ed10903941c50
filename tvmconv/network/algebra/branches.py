"""Rule: replace a sum of linear maps of one value, or successive maps, by one map, where that costs less.

For RepVGG, MobileOne, ACNet, diverse branch blocks and adapters that were not merged: sums are flattened, each summand is followed back to
a value with other readers, and summands of one source are joined if the estimate of their joined kernel is less than the sum of theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import relax

from ...targets.target import CpuTarget
from ..ir.constants import static_shape
from ..ir.graph import Graph
from ..ir.problem_of import DTYPES
from .costs import map_cycles, part_cycles, pass_cycles
from .maps import LinearMap, add, describe_gain
from .reading import Level, is_rows, levels, pixels, write_map
from .rounding import rounds_more


@dataclass(frozen=True)
class Merge:
    """Replacement of a variable: a map of a source, and other summands.

    Attributes
    ----------
    source, map, rows
        The map and its source, which has rows of numbers, or pixels.
    others
        Other summands.
    count
        Number of joined summands.
    saved
        Ratio of multiplications for each output pixel, before by after.
    """

    source: Any
    map: LinearMap
    rows: bool
    others: tuple[Any, ...] = ()
    count: int = 1
    saved: float = 1.0

    @property
    def said(self) -> str:
        """Description of the merge, in words."""
        return describe_gain(self.count, self.saved)

    def written(self, visit: Callable[[Any], Any], emit: Callable[[Any], Any]) -> Any:
        """Return its operators, applied to the source and the others."""
        made = write_map(self.map, visit(self.source), emit, self.rows)
        for other in self.others:
            made = emit(relax.op.add(made, visit(other)))
        return made


@dataclass
class Branches:
    """The merges of a function, by the variables that they are bound to.

    Parameters
    ----------
    target
        CPU of the estimates.
    small
        Whether no joined map may have more numbers than the original ones.
    """

    graph: Graph
    target: CpuTarget
    small: bool = False

    def find(self) -> dict[Any, Merge]:
        """Return the merges, none of which is inside another."""
        merges: dict[Any, Merge] = {}
        inside: set[Any] = set()
        for variable in reversed([*self.graph.values]):
            if variable in inside or not self._is_covered(variable):
                continue
            summands, sums = self._summands(variable)
            merge = self._merged(variable, summands) if sums else self._chained(variable, inside)
            if merge is not None:
                merges[variable] = merge
                inside |= self._before(variable, merge)
            inside |= sums  # not examined by themselves
        return merges

    def _is_covered(self, variable: Any) -> bool:
        shape = static_shape(getattr(variable, "ty", None))
        if shape is None or 0 in shape or str(variable.ty.dtype) not in DTYPES:
            return False
        return 3 <= len(shape) <= 5 or (len(shape) >= 2 and is_rows(variable, self.graph))

    def _summands(self, variable: Any) -> tuple[list[Any], set[Any]]:
        """Return the summands of a variable, and the intermediate sums; the variable itself, if it is no sum."""
        summands, sums, waiting = [], set[Any](), [variable]
        while waiting:
            each = waiting.pop()
            if self._is_sum(each) and (each is variable or len(self.graph.readers(each)) == 1):
                sums.add(each)
                waiting += reversed(self.graph.values[each].args)
            else:
                summands.append(each)
        return summands, sums

    def _is_sum(self, variable: Any) -> bool:
        """Return whether a variable is the sum of two of its shape."""
        call = self.graph.call(variable, "relax.add")
        if call is None or not all(isinstance(each, relax.Var) for each in call.args):
            return False
        if any(self.graph.array(each) is not None for each in call.args):
            return False
        shape, dtype = static_shape(variable.ty), variable.ty.dtype
        return all(static_shape(each.ty) == shape and each.ty.dtype == dtype for each in call.args)

    def _before(self, variable: Any, merge: Merge) -> set[Any]:
        """Return the variables that are unused after a merge."""
        found: set[Any] = set()
        waiting = [variable]
        while waiting:
            value = self.graph.values.get(waiting.pop())
            read = [value.tuple_value] if isinstance(value, relax.TupleGetItem) else getattr(value, "args", [])
            for each in read:
                kept = not isinstance(each, relax.Var) or each in {merge.source, *merge.others, *found}
                if not kept and len(self.graph.readers(each)) == 1:
                    found.add(each)
                    waiting.append(each)
        return found

    def _merged(self, variable: Any, summands: list[Any]) -> Merge | None:
        rows = any(is_rows(each, self.graph) for each in summands) and not 3 <= variable.ty.ndim <= 5
        rows = rows or any(self._is_product(each) for each in summands)
        candidates = [
            levels(each, self.graph, rows) if len(self.graph.readers(each)) == 1 else levels(each, self.graph, rows)[:1]
            for each in summands
        ]
        sources: dict[Any, dict[int, Level]] = {}
        for number, each in enumerate(candidates):
            for level in each:
                sources.setdefault(level.source, {}).setdefault(number, level)
        best: tuple[float, Merge] | None = None
        for source, chosen in sources.items():
            taken = list(chosen.values())
            if len(taken) < 2 or not any(level.parts for level in taken):
                continue
            others = tuple(each for number, each in enumerate(summands) if number not in chosen)
            found = self._gain(variable, source, taken, others, rows)
            if found is not None and (best is None or found[0] > best[0]):
                best = found
        return None if best is None else best[1]

    def _is_product(self, variable: Any) -> bool:
        """Return whether a summand is a Linear's product, possibly scaled and shifted by constants."""
        call = self.graph.call(variable)
        while (
            call is not None and call.op.name in ("relax.add", "relax.multiply") and isinstance(call.args[0], relax.Var)
        ):
            if self.graph.array(call.args[1]) is None:
                return False
            call = self.graph.call(call.args[0])
        return call is not None and call.op.name == "relax.matmul"

    def _chained(self, variable: Any, inside: set[Any]) -> Merge | None:
        """Return the best merge of successive maps; variables that cannot be merged by themselves are added to `inside`."""
        rows = self._is_product(variable)
        if not rows and not 3 <= variable.ty.ndim <= 5:
            return None
        best: tuple[float, Merge] | None = None
        reached = levels(variable, self.graph, rows)
        if all(part.is_diagonal for part in reached[-1].maps):
            inside.update(level.source for level in reached[1:-1])
        for level in reached:
            if sum(not part.is_diagonal for part, _ in level.parts) > 1:
                found = self._gain(variable, level.source, [level], (), rows)
                if found is not None and (best is None or found[0] > best[0]):
                    best = found
        return None if best is None else best[1]

    def _gain(
        self, variable: Any, source: Any, taken: list[Level], others: tuple[Any, ...], rows: bool
    ) -> tuple[float, Merge] | None:
        """Return the cycles that a merge saves, and the merge; None: it saves none, or has larger rounding errors."""
        merged = add([level.map for level in taken])
        shape, dtype = static_shape(source.ty), DTYPES[str(variable.ty.dtype)]
        if merged is None or shape is None:
            return None
        whole = static_shape(variable.ty) or ()
        before = pass_cycles(whole, dtype, 3 * (len(taken) - 1), self.target)
        products = 0
        for level in taken:
            real = [(part, given) for part, given in level.parts if not part.is_diagonal]
            before += sum(part_cycles(part, given, dtype, self.target) for part, given in real)
            if not real and level.parts:
                before += pass_cycles(whole, dtype, 2, self.target)
            products += sum(part.products for part, _ in real if not part.passes)
        if not products:  # slices and pools alone need no kernel
            return None
        after = map_cycles(merged, pixels(shape, rows), dtype, self.target)
        if after >= before or (self.small and merged.products > products):
            return None
        if rounds_more(merged, [level.maps for level in taken], dtype):
            return None
        saved = products / merged.products
        return before - after, Merge(source, merged, rows, others, len(taken), saved)
