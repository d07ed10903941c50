"""Arguments of a node by the operator's own names, and the type of its result, for converters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes
from tvm import relax, te

from ....frontends.torch.nodes import arguments
from ...ir.constants import static_shape
from ...ir.free import Dims, dims_of
from ..builder import as_tensor
from ..quantized import Quantized, find_dequantized

if TYPE_CHECKING:
    from torch.fx import Node
    from tvm.relax.frontend.torch.base_fx_graph_translator import BaseFXGraphImporter


class Given:
    """A node's arguments by name, with the defaults of the operator's schema.

    Parameters
    ----------
    node
        The call of an operator of ATen.
    importer
        The reader of the program, which has the tensors of earlier nodes.
    dims
        Converts the extents of a PyTorch tensor to Relax's.
    fixed
        The values of nodes that depend only on the program's parameters.
    """

    def __init__(
        self, node: Node, importer: BaseFXGraphImporter, dims: Callable[[Any], Dims], fixed: Mapping[Node, Any]
    ) -> None:
        self.builder, self.node, self._dims, self.fixed = importer.block_builder, node, dims, fixed
        self.nodes = arguments(node)
        self._values = {name: importer._retrieve_args(value) for name, value in self.nodes.items()}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def get(self, name: str) -> Any:
        """Return an argument; None if the operator has no argument of this name."""
        return self._values.get(name)

    @property
    def dtype(self) -> str:
        """The type of the result, or of the first of several."""
        value = self.node.meta["val"]
        return type_name((value[0] if isinstance(value, (tuple, list)) else value).dtype)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Return an expression bound to a variable."""
        return self.builder.emit(expr)

    def binding(self, expr: Any) -> Any:
        """Return a variable's value."""
        return self.builder.lookup_binding(expr) if isinstance(expr, relax.Var) else expr

    def dequantized(self, name: str) -> Quantized | None:
        """Return the integers from which a tensor is dequantized; None for other tensors."""
        return find_dequantized(self.builder, self[name])

    def of_type(self, value: Any, dtype: str) -> relax.Expr:
        """Return a tensor in a type, or a number, which may be an expression of extents, as a tensor without axes."""
        return as_tensor(self.builder, value, dtype)

    def common_type(self, *names: str) -> str:
        """Return the type to which PyTorch promotes arguments: tensors take precedence over tensors without axes, and these over numbers."""
        values = [getattr(value, "meta", {}).get("val", value) for value in map(self.nodes.__getitem__, names)]
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
        return type_name(elementwise_dtypes(*values, type_promotion_kind=kind)[1])

    def fixed_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor.

        Raises
        ------
        ValueError
            If it is not fixed.
        """
        return self.shape_of(self[name], name)

    def dims(self, name: str) -> Dims:
        """Return the extents of a tensor, numbers or expressions of free extents.

        Raises
        ------
        ValueError
            If they are unknown.
        """
        return self.dims_of(self[name], name)

    @staticmethod
    def dims_of(value: relax.Expr, name: str = "a tensor") -> Dims:
        """Return the extents of a value; errors are those of :meth:`dims`."""
        found = dims_of(value.ty)
        if found is None:
            raise ValueError(f"the shape of {name} is not known")
        return found

    def made_dims(self) -> Dims:
        """Return the extents of the result, which is one tensor."""
        return self._dims(self.node.meta["val"].shape)

    def counted(self, element: Callable[..., Any], shape: Sequence[Any], dtype: str | None = None) -> relax.Expr:
        """Return a tensor with elements computed from their indices."""
        dtype = dtype or self.dtype

        def counted() -> te.Tensor:
            return te.compute(shape, lambda *at: element(*at).astype(dtype))

        return self.builder.emit_te(counted, primfunc_name_hint="counted")

    @staticmethod
    def shape_of(value: relax.Expr, name: str = "a tensor") -> tuple[int, ...]:
        """Return the shape of a value; errors are those of :meth:`fixed_shape`."""
        shape = static_shape(value.ty)
        if shape is None:
            raise ValueError(f"the shape {value.ty.shape} of {name} is not fixed")
        return shape

    def axes(self, name: str = "dim", of: str = "self") -> list[int]:
        """Return axes as non-negative numbers, from one axis or a list; None and an empty list mean all axes."""
        given, rank = self.get(name), self[of].ty.ndim
        if given is None or given == [] or not rank:
            return list(range(rank))
        return [int(axis) % rank for axis in (given if isinstance(given, (list, tuple)) else [given])]


Converter = Callable[[Given], Any]
Converters = Mapping[str, Converter]


def type_name(dtype: Any) -> str:
    """Return TVM's name of a type of PyTorch."""
    return str(dtype).removeprefix("torch.")
