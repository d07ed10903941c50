"""Programs of torch.export as Relax modules, by our tables of converters, and TVM's frontend for other operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
import tvm
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from tvm import relax
from tvm.relax.frontend.torch.exported_program_translator import ExportedProgramImporter

from ....errors import SourceError, last_line
from ....frontends.torch.fixed import TYPES
from ....frontends.torch.memory import dense, readable
from ....support.lines import line_of, module_of
from ...ir.extents import with_extents
from ...ir.free import Dims, dims_of, equal
from ...ir.nodes import with_nodes
from ..builder import end_block, write_extents_alike
from .arguments import Converter, Given
from .complex import is_complex
from .constants import constants, fixed_of
from .decompose import decompose
from .elementwise import ARITHMETIC
from .folding import FOLDING
from .fourier import FOURIER
from .free import ProgramExtents, compute_float
from .indexing import MOVES
from .matmul import PRODUCTS
from .normalization import NORMALIZATIONS
from .pool_resize import WINDOWS
from .quantized import QUANTIZERS, check_weights
from .recurrent import RECURRENT
from .reductions import REDUCTIONS
from .scatter import WRITES

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from ....family import Extent

ALIGNMENT = 64  # bytes, of TVM's own arrays
NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
# Types that neither TVM's frontend nor our kernels support.
_FLOAT8 = {
    each for each in vars(torch).values() if isinstance(each, torch.dtype) and str(each).startswith("torch.float8")
}
CONVERTERS = {
    **ARITHMETIC, **FOLDING, **MOVES, **NORMALIZATIONS, **PRODUCTS, **QUANTIZERS, **RECURRENT, **REDUCTIONS, **WINDOWS, **WRITES,
}  # fmt: skip


class UnreadError(SourceError):
    """An operator that cannot be read.

    Parameters
    ----------
    why
        The reason.
    node
        The program's node; None if no node is at fault.
    """

    def __init__(self, why: str, node: Node | None) -> None:
        at = f"{node.target.__name__} ({line_of(node) or 'no line is known'}): " if node is not None else ""
        super().__init__(f"the exported program cannot be read: {at}{why}")
        self.why, self.node = why, node


def read_torch(program: ExportedProgram, names: Mapping[str, str] | None = None) -> tvm.IRModule:
    """Return a program of ``torch.export.export`` as a Relax module, with its parameters as constants.

    Parameters
    ----------
    program
        The program; extents that its ``dynamic_shapes`` left free are free in the module.
    names
        Names of extents by PyTorch's symbols; absent: ``input[axis]``.

    Raises
    ------
    UnreadError
        If an operator, or its use, is not supported; it names the operator, and the line of code that called it.
    """
    try:
        program = decompose(program)
    except Exception as error:  # of PyTorch's own operators
        raise UnreadError(last_line(error), None) from error
    return read_decomposed(program, names)


def read_decomposed(program: ExportedProgram, names: Mapping[str, str] | None = None) -> tvm.IRModule:
    """Return a decomposed program as a Relax module; parameters and errors are those of :func:`read_torch`."""
    importer = _ProgramImporter()
    try:
        importer.prepare(program, names)
        module = importer.from_exported_program(program, False, False, False, None)
    except Exception as error:  # of any kind, from assertions and converters
        end_block(importer.block_builder)
        if isinstance(error, SourceError):
            raise
        raise importer.error(last_line(error)) from error
    if decided := importer.decided():
        raise UnreadError(f"the program depends on extents that vary by call: {decided}", None)
    for variable, function in module.functions_items():
        if variable.name_hint != "main":  # a branch, which is not called from outside
            module[variable] = function.without_attr("global_symbol")
    module = with_nodes(module, importer.names)
    return with_extents(module, importer.extents) if importer.extents else module


def find_unreadable(nodes: Iterable[Node]) -> dict[Node, str]:
    """Return the nodes of a decomposed program's graph, with fixed tensors as attributes, that cannot be read, and the reasons."""
    importer = _ProgramImporter()
    found: dict[Node, str] = {}
    for node in nodes:
        if why := _branching(node) or importer.lacking(node) or _lacks_number(node, found):
            found[node] = why
    return found


def _lacks_number(node: Node, found: Mapping[Node, str]) -> str:
    """Return why a node without a tensor as result, such as an assertion, cannot be read: a number that it takes cannot; else nothing."""
    if node.op != "call_function" or _is_tensor(node):
        return ""
    return next((found[each] for each in node.all_input_nodes if each in found and not _is_tensor(each)), "")


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


def _is_float8(node: Node) -> bool:
    return getattr(node.meta.get("val"), "dtype", None) in _FLOAT8


def _name(node: Node) -> str:
    """Return the path of the module that called an operator, and the operator."""
    operator = str(node.meta.get("original_aten", node.target)).removeprefix("aten.").partition(".")[0]
    path = module_of(node)
    return f"{path}: {operator}" if path else operator


def _branching(node: Node) -> str:
    """Return the reason to leave a node with subgraphs, which a part of a program cannot contain, to PyTorch; else nothing."""
    module = node.graph.owning_module
    given = [each for each in node.all_input_nodes if each.op == "get_attr"]
    is_graph = any(isinstance(attrgetter(str(each.target))(module), torch.nn.Module) for each in given)
    return "its branches are PyTorch's" if is_graph else ""


class _ProgramImporter(ExportedProgramImporter):  # type: ignore[misc]
    """TVM's frontend with our converters, which keeps the current node for errors."""

    convert_map: dict[str, Callable[..., Any]]

    def __init__(self) -> None:
        super().__init__()
        self._node: Node | None = None
        self._fixed: dict[Node, Any] = {}
        self._extents: ProgramExtents | None = None
        # Names of nodes, by their variables.
        self.names: dict[Any, str] = {}
        self.convert_map |= {name: self._ours(each) for name, each in CONVERTERS.items()}
        self.convert_map = {name: self._watched(each) for name, each in self.convert_map.items()}

    def prepare(self, program: ExportedProgram, names: Mapping[str, str] | None) -> None:
        """Compute the fixed tensors; raise an UnreadError for the first operator that cannot be read."""
        self._fixed = fixed_of(program)
        self._extents = ProgramExtents(program, names)
        for self._node in program.graph.nodes:
            check_weights(self._node, self._fixed)
            if self._node not in self._fixed and (why := self.lacking(self._node)):
                raise self.error(why)
        self._node = None
        # Nodes that compute fixed tensors or extents are not converted.
        self.convert_map |= {
            node.target.__name__: self._watched(None)
            for node in program.graph.nodes
            if node.op == "call_function" and node.target.__name__ not in self.convert_map
        }

    @property
    def extents(self) -> list[Extent]:
        """The free extents of the inputs."""
        return self._extents.extents if self._extents is not None else []

    def decided(self) -> str:
        """Return PyTorch's decisions on free extents, or nothing."""
        return self._extents.decided() if self._extents is not None else ""

    def create_input_vars(self, exported_program: ExportedProgram) -> tuple[Any, Any, dict[str, Any]]:
        """Return TVM's variables of inputs, with our symbols for free extents, whose ranges the module stores by itself."""
        parameters, inputs, ranges = super().create_input_vars(exported_program)
        if not self.extents:
            return parameters, inputs, ranges
        values = {node.name: node.meta["val"] for node in exported_program.graph.find_nodes(op="placeholder")}
        for name, variable in inputs.items():
            inputs[name] = relax.Var(name, relax.TensorType(self._dims(values[name].shape), variable.ty.dtype))
        return parameters, inputs, {}

    def lacking(self, node: Node) -> str:
        """Return why a node cannot be read, or would be misread by the frontend; else nothing."""
        if node.op != "call_function":
            return ""
        if isinstance(node.meta.get("val"), NUMBERS):
            return "it is a number read from a tensor" if free_unbacked_symbols(node.meta["val"]) else ""
        name = node.target.__name__
        if name in FOURIER:
            return "it transforms along an axis of free extent"
        if name not in self.convert_map:
            return "there is no conversion of it"
        if name.startswith("_assert_async"):
            return "it checks a tensor's values in each call"
        if any(map(is_complex, (node, *node.all_input_nodes))):
            return "its operands or results are complex"
        if node.meta.get("val") is not None and any(map(_is_float8, (node, *node.all_input_nodes))):
            return "its operands or results are f8"
        if any(free_unbacked_symbols(each.meta.get("val")) for each in (node, *node.all_input_nodes)):
            return "its sizes depend on a tensor's values"
        # The frontend would make them constants. Our converters refuse by themselves: attention is random with dropout only.
        if name not in CONVERTERS and torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()):
            return "it draws random numbers"
        if name == "topk.default" and node.args[1] == 0:
            return "a topk of 0 elements is, for Relax, one of all"
        return ""

    def error(self, why: str) -> UnreadError:
        """Return an error at the current node, with its reason."""
        return UnreadError(why, self._node)

    @staticmethod
    def _convert_data_type(input_type: Any, env: dict[Any, Any] | None = None) -> str:
        """Return TVM's name of a type; for f8 parameters that of their bits, as only fixed tensors are computed from them."""
        if input_type in _FLOAT8:
            return "uint8"
        return str(ExportedProgramImporter._convert_data_type(input_type, env))

    @staticmethod
    def _convert_pytorch_tensor_to_tvm(tensor_value: torch.Tensor) -> tvm.runtime.Tensor:
        """Return a parameter as a TVM tensor that shares its memory, or a copy if it is not contiguous and aligned."""
        tensor = readable(dense(tensor_value))
        tensor = tensor.view(torch.uint8) if tensor.dtype in _FLOAT8 else tensor
        # PyTorch's allocations have the alignment that TVM requires, but not each part of one.
        return tvm.runtime.from_dlpack(tensor if tensor.data_ptr() % ALIGNMENT == 0 else tensor.clone())

    def _ours(self, converter: Converter) -> Callable[[Node], Any]:
        return lambda node: converter(Given(node, self, self._dims, self._fixed))

    def _watched(self, convert: Callable[[Node], Any] | None) -> Callable[[Node], Any]:
        def watched(node: Node) -> Any:
            self._node = node
            if node not in self._fixed:
                value = node.meta.get("val")
                if isinstance(value, torch.Tensor) and value.dtype in TYPES and 0 in value.shape:
                    # There is nothing to compute.
                    return constants(torch.zeros(value.shape, dtype=value.dtype))
                if isinstance(value, torch.SymInt) and self._extents is not None:
                    return self._extents.of(value)
                if isinstance(value, torch.SymFloat):
                    return compute_float(self.block_builder, node, self._retrieve_args(node.args))
                if isinstance(value, NUMBERS):
                    return None  # its consumers are extents, or cannot be read
                assert convert is not None
                made = self._shaped(convert(node), value)
                if isinstance(made, relax.Var):
                    self.names.setdefault(made, _name(node))
                return made
            # Fixed nodes do not read its constant.
            return None if all(user in self._fixed for user in node.users) else constants(self._fixed[node])

        return watched

    def _dims(self, shape: Any) -> Dims:
        """Return PyTorch's extents as Relax's."""
        return tuple(shape) if self._extents is None else tuple(map(self._extents.of, shape))

    def _shaped(self, made: Any, value: Any) -> Any:
        """Return a tensor reshaped to the shape that PyTorch computed, if TVM cannot prove its free extents equal."""
        if not isinstance(value, torch.Tensor) or all(isinstance(size, int) for size in value.shape):
            return made
        known, dims = self._dims(value.shape), dims_of(made.ty)
        if dims is None:
            made = self._by_operands_alike(made)
            dims = dims_of(made.ty)
        if dims is not None and len(dims) == len(known) and all(map(equal, dims, known)):
            return made
        return self.block_builder.emit(relax.op.reshape(made, known))

    def _by_operands_alike(self, made: Any) -> Any:
        """Return an operator's result with equal extents of its operands written by one expression, where TVM cannot prove them equal."""
        call = self.block_builder.lookup_binding(made)
        if not isinstance(call, relax.Call) or not all(isinstance(each.ty, relax.TensorType) for each in call.args):
            return made
        operands = [*call.args]
        if not write_extents_alike(self.block_builder, operands):
            return made
        return self.block_builder.emit(relax.Call(call.op, operands, call.attrs, call.ty_args))
