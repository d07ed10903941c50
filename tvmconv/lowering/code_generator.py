"""`CodeGenerator`: the interface of compiling for a kind of target; a kind's folder here has one in its module `generator`."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

from ..problem import Problem
from ..runtime.kernel_object import KernelObject
from ..targets.target import Target
from .common.entry_points import EntryPoints

if TYPE_CHECKING:
    import tvm

    from ..algorithms.definition import Definition


class Written(NamedTuple):
    """A kernel's library.

    Attributes
    ----------
    packed_filter
        Layout of its packed filter; None: it reads filters in place.
    workspace_bytes
        Bytes that a call allocates.
    functions
        Its functions before LLVM; None for a GPU, whose kernels are C++.
    code
        Its object, with LLVM's debug information, where the library does not keep it.
    """

    packed_filter: dict[str, Any] | None
    workspace_bytes: int
    functions: tvm.IRModule | None
    code: KernelObject | None = None


class CodeGenerator(Protocol):
    """Compiler of kernels for one kind of target.

    Attributes
    ----------
    stages
        Names of the stages after the schedule that `show` returns, in order.
    passes
        Names of the passes after which `show` returns a kernel's functions.
    in_parts
        Whether a search's candidates may be compiled to objects, of which many are linked into one library.
    """

    stages: tuple[str, ...]
    passes: tuple[str, ...]
    in_parts: bool

    def check_tools(self, target: Any) -> None:
        """Raise ToolchainError if a program that compiles for a target is missing or too old."""

    def write(
        self,
        problem: Problem,
        target: Any,
        choice: Any,
        entry_points: EntryPoints,
        path: str | os.PathLike[str],
        apart: bool,
        next_lines: int,
    ) -> Written:
        """Write a kernel's library; its object is returned if `apart`, else kept in the library for programs in C.

        `next_lines` as in `tvmconv.lowering.compiler.compile_problem`.
        """

    def show(self, stage: str, problem: Problem, target: Any, choice: Any) -> str:
        """Return one of `stages`, or the functions after one of `passes`, as text; `choice` is a `tvmconv.lowering.compiler.Choice`."""

    def module(self, scheduled: tvm.IRModule, definition: Definition, target: Any) -> Any:
        """Return the runtime module of a scheduled definition; its function ``main`` takes the operands and the output.

        Raises
        ------
        TargetError
            If kernels of this kind are not called by such a module.
        """


def generator_of(target: Target) -> CodeGenerator:
    """Return the code generator of a target's kind."""
    return cast(CodeGenerator, import_module(f"{__package__}.{target.kind}.generator"))
