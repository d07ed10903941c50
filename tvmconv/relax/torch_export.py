"""Programs of torch.export as Relax modules: by tables of ours from ATen's operators to Relax's, the rest by TVM's frontend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import tvm

from ..errors import SourceError, last_line, missing_extra

try:
    from torch.export import default_decompositions
except ImportError:
    raise missing_extra("torch", "torch") from None

from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from .torch_arithmetic import ARITHMETIC
from .torch_given import Converter, Given
from .torch_moves import MOVES
from .torch_normalizations import NORMALIZATIONS
from .torch_products import PRODUCTS
from .torch_reductions import REDUCTIONS
from .torch_windows import WINDOWS

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

_CONVERTERS = {**ARITHMETIC, **MOVES, **NORMALIZATIONS, **PRODUCTS, **REDUCTIONS, **WINDOWS}
# PyTorch would write these as several operators that move or ask more than they need to.
_WHOLE = {*WINDOWS, "linear.default", "matmul.default", "scaled_dot_product_attention.default"}


def read_torch(program: ExportedProgram) -> tvm.IRModule:
    """Return what ``torch.export.export`` gave as a Relax module, its parameters as constants.

    Raises
    ------
    SourceError
        If an operator is not known, or not in this use; it says which, and the line of code that called it.
    """
    table = default_decompositions()
    for operator in [each for each in table if each.namespace == "aten" and each.__name__ in _WHOLE]:
        table.pop(operator)
    importer = _Importer()
    try:
        program = program.run_decompositions(table)
        importer.check(program)
        return importer.from_exported_program(program, False, False, False, None)
    except SourceError:
        raise
    except Exception as error:  # assertions, and whatever converters stumble over
        raise SourceError(f"the exported program cannot be read: {importer.place()}{last_line(error)}") from error


def _lacking(node: Node) -> str:
    """Return what the frontend would have wrong in silence of a node, or nothing."""
    name = node.target.__name__ if node.op == "call_function" else ""
    if name == "topk.default" and node.args[1] == 0:
        return "the first 0 of a sort are, for Relax, all"
    read = any(user.args[1:] == (1,) and user.users for user in node.users)
    return "there are no indices of maxima" if "_with_indices" in name and read else ""


class _Importer(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's frontend with our tables; it knows at which node it is."""

    convert_map: dict[str, Callable[..., Any]]

    def __init__(self) -> None:
        super().__init__()
        self._node: Node | None = None
        self.convert_map |= {name: self._ours(each) for name, each in _CONVERTERS.items()}
        self.convert_map = {name: self._watched(each) for name, each in self.convert_map.items()}

    def check(self, program: ExportedProgram) -> None:
        """Raise a SourceError that names the first operator that is not known, and its line."""
        for node in program.graph.nodes:
            if node.op == "call_function" and node.target.__name__ not in self.convert_map:
                self._node = node
                raise SourceError(f"the exported program cannot be read: {self.place()}there is no conversion of it")
            if lacking := _lacking(node):
                self._node = node
                raise SourceError(f"the exported program cannot be read: {self.place()}{lacking}")

    def place(self) -> str:
        """Return the operator at which reading is, and the line that called it, for a message."""
        if self._node is None:
            return ""
        lines = str(self._node.meta.get("stack_trace") or "").strip().splitlines()
        files = [number for number, line in enumerate(lines) if line.strip().startswith("File ")]
        line = ", ".join(each.strip() for each in lines[files[-1] : files[-1] + 2]) if files else "no line is known"
        return f"{self._node.target.__name__} ({line}): "

    def _ours(self, converter: Converter) -> Callable[[Node], Any]:
        return lambda node: converter(Given(node, self))

    def _watched(self, convert: Callable[[Node], Any]) -> Callable[[Node], Any]:
        def watched(node: Node) -> Any:
            self._node = node
            return convert(node)

        return watched
