"""Serial loops over tasks, for kernels that finish before a second thread would start."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm_ffi.structural import structural_map


def in_one_thread(body: Any) -> Any:
    """Return the statement with serial loops in place of parallel ones."""

    def serial(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    return structural_map(body, (tirx.For, serial))
