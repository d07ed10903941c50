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
        The layout that it packs its filter to, if it does.
    workspace_bytes
        What a call allocates.
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
        Those of a kernel that it shows, in order, after its schedule.
    passes
        Names of passes, after each of which it shows a kernel's functions.
    in_parts
        Whether candidates of a search may be compiled to objects, of which many are linked together.
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
        """Write a kernel's library; its object is returned `apart`, or kept in it for programs in C.

        `next_lines` as in `tvmconv.lowering.compiler.compile_problem`.
        """

    def show(self, stage: str, problem: Problem, target: Any, choice: Any) -> str:
        """Return one of `stages`, or the functions after one of `passes`, as text; `choice` is a `tvmconv.lowering.compiler.Choice`."""

    def module(self, scheduled: tvm.IRModule, definition: Definition, target: Any) -> Any:
        """Return the runtime module of a scheduled definition; its function ``main`` takes the operands and the output.

        Raises
        ------
        TargetError
            If kernels are not called so.
        """


def generator_of(target: Target) -> CodeGenerator:
    """Return the code generator of a target's kind."""
    return cast(CodeGenerator, import_module(f"{__package__}.{target.kind}.generator"))
