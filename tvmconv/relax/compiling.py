"""`export`: a Relax module with our kernels as one library that runs by a plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tvm
from tvm import relax, tirx
from tvm.ir import Call

from ..checks import as_path
from ..errors import BuildError, SourceError, TvmconvError, last_line
from ..lowering.common.rewrites import found
from ..support.progress import Progress
from ..support.toolchain import find_compiler
from ..tuning.records import Records
from .network import OUTPUT_NAMES, check_target, scheduled
from .planning import COPY, plan
from .rewriting import Row, report, use_kernels
from .writing import write

_PACKED = ("tirx.tvm_call_packed", "tirx.tvm_call_cpacked", "tirx.tvm_call_packed_lowered")


def export(
    module: tvm.IRModule,
    path: str | os.PathLike[str],
    target: str = "host",
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Write what :func:`tvmconv.relax.use_kernels` returned for the same target as one library, which is replaced whole.

    It needs tvm-ffi alone: :func:`tvmconv.load_network` calls it, whose description has `facts` as ``"caller"``.

    Raises
    ------
    SourceError
        If an input or output of its function ``main`` has no fixed shape; or it does what a plan cannot: decide by its numbers,
        or call TVM's runtime.
    TargetError
        If `target` is a CPU of another instruction set than this machine's.
    BuildError
        If TVM cannot compile it.
    ToolchainError
        If there is no C compiler, or it fails.
    """
    find_compiler()
    path = as_path("path", path).absolute()
    known = check_target(target)
    rows = report(module)
    try:
        lowered = scheduled(module, known, planned=True)
        main = lowered["main"]
        planned = plan(main)
        used = {step.function for step in planned.steps} - {COPY}
        functions = {name: lowered[name] for name in used}
        _check(functions)
        inputs = [str(each.name) for each in main.params]
        write(planned, functions, (inputs, _names(main, len(planned.outputs))), rows, known, facts or {}, Path(path))
    except (TvmconvError, OSError):
        raise
    except Exception as error:  # whatever TVM's passes stumble over
        raise BuildError(
            f"TVM cannot compile the network: {last_line(error)}; tvmconv build compiles its convolutions"
        ) from error


def _names(main: relax.Function, count: int) -> list[str]:
    """Return the outputs' names: as the model has them, else numbers."""
    names = [str(name) for name in main.attrs[OUTPUT_NAMES]] if OUTPUT_NAMES in (main.attrs or {}) else []
    return names if len(set(names)) == count else [f"output{number}" for number in range(count)]


def _check(functions: dict[str, tirx.PrimFunc]) -> None:
    for name, function in functions.items():
        called: list[Any] = [each for each in found(function.body, Call) if getattr(each.op, "name", "") in _PACKED]
        if called:
            raise SourceError(
                f"the network's {name} calls TVM's runtime ({called[0].args[0]}), which its library is to do without; TVM's"
                " virtual machine runs it (tvmconv compile --format relax)"
            )


def build(
    module: tvm.IRModule,
    path: str | os.PathLike[str],
    target: str = "host",
    records: Records | None = None,
    layout: str | None = None,
    math: str = "default",
    progress: Progress | None = None,
    facts: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Compile a Relax module, its convolutions by our kernels, to one library; return what became of each convolution.

    Parameters and errors are those of :class:`tvmconv.relax.UseKernels` and :func:`export`.
    """
    module = use_kernels(module, target, records, layout, math, progress)
    export(module, path, target, facts)
    return report(module)
