"""The mutator of choices: MetaSchedule has mutators of tile sizes, but none of categorical samples."""

from __future__ import annotations

import random
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.mutator import PyMutator
from tvm.s_tir.schedule import Trace


@derived_object
class MutateChoice(PyMutator):  # type: ignore[misc]
    """Changes one choice of a trace."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def _initialize_with_tune_context(self, context: Any) -> None:
        pass

    def apply(self, trace: Trace, _: int) -> Trace | None:
        """Return the trace with another decision at one place; None if there is no choice."""
        open_choices = [(inst, int(place)) for inst, place in trace.decisions.items() if len(inst.attrs[0]) > 1]
        if not open_choices:
            return None
        inst, place = self._random.choice(open_choices)
        others = [other for other in range(len(inst.attrs[0])) if other != place]
        return trace.with_decision(inst, self._random.choice(others), True)

    def clone(self) -> Any:
        """Return another mutator, with another random state."""
        return MutateChoice(self._random.getrandbits(32))
