"""Replace operators by calls of kernels, and report on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax.expr_functor import mutator

from ...family import ProblemFamily
from ...family_text import format_family
from ...problem import Problem
from ...runtime.arrays import KERNEL_TYPES
from ...signature import format_signature
from ..ir.extents import has_extents
from ..ir.free import dims_of, equal, product
from ..ir.mutator import Rebinding
from ..ir.nodes import name_new
from ..ir.problem_of import elements, plain_filter
from .build import Array, NetworkKernel
from .data_matmul import DataProduct
from .families import FreeKernel
from .fuse_epilogue import EpilogueChain, Followed

# Growth of a filter by packing that a small file allows: rounding up to whole register tiles.
MOST_GROWTH = 1.05


@dataclass(frozen=True)
class ConvolutionRow:
    """Report on one convolution of a module.

    Attributes
    ----------
    name
        Name of the function, and of the convolution's variable.
    signature, algorithm, origin
        Problem of our kernel, and how it was compiled; empty where TVM compiles the convolution.
    function
        Name of our kernel's function in the module.
    why
        Reason why TVM compiles it; empty where our kernel is used.
    """

    name: str
    signature: str = ""
    algorithm: str = ""
    origin: str = ""
    function: str = ""
    why: str = ""


@mutator
class KernelReplacing(Rebinding):
    """Mutator that replaces chains by calls of their kernels; if it `packs_late`, steps of the network pack filters that packing enlarges."""

    def __init__(
        self,
        mod: tvm.IRModule,
        kernels: Mapping[Problem, NetworkKernel],
        of_data: Mapping[Problem, NetworkKernel],
        free: Mapping[ProblemFamily, FreeKernel],
        packs_late: bool,
    ) -> None:
        super().__init__(mod)
        self._mod, self._kernels, self._of_data, self._free, self._packs_late = mod, kernels, of_data, free, packs_late
        self._chains: Mapping[Any, Followed] = {}
        self._filters: Mapping[Any, Any] = {}
        # Functions by problem, or family and pads, and by name.
        self._functions: dict[tuple[Any, str], Any] = {}
        # Outputs of kernels by the variables that they replace.
        self._outputs: dict[Any, relax.Var] = {}

    def replace(self, variable: Any, chains: Mapping[Any, Followed]) -> None:
        """Rewrite one function of the module."""
        self._chains = {output: chain for output, chain in chains.items() if self._kernel(chain)}
        # Here, not where they are used: TVM's visitors turn all errors into RuntimeErrors.
        self._filters = {
            output: self._given_filter(chain)
            for output, chain in self._chains.items()
            if isinstance(chain, EpilogueChain)
        }
        self.builder_.update_func(variable, self.visit_expr(self._mod[variable]))

    def _kernel(self, chain: Followed) -> NetworkKernel | FreeKernel | None:
        if chain.family is not None:
            return self._free.get(chain.family)
        return (self._of_data if isinstance(chain, DataProduct) else self._kernels).get(chain.problem)

    def module(self) -> tvm.IRModule:
        """Return the rewritten module."""
        return name_new(self.builder_.finalize())

    def row(self, function: str, chain: Followed) -> ConvolutionRow:
        """Return the report's row for a chain."""
        name, kernel, family = f"{function}.{chain.name}", self._kernel(chain), chain.family
        signature = format_signature(chain.problem) if family is None else format_family(family)
        if kernel is None:
            known = family is None or has_extents(self._mod)
            return ConvolutionRow(
                name, signature, why="no algorithm gives a correct kernel" if known else "its shapes are not fixed"
            )
        return ConvolutionRow(
            name, signature, kernel.algorithm, kernel.origin, self._functions[_key(chain), _name(chain)].name_hint
        )

    def rebound(self, binding: relax.VarBinding) -> relax.Expr | None:
        """Return the call of a chain's kernel."""
        chain = self._chains.get(binding.var)
        if chain is None:
            return None
        output = self.builder_.emit(self._call(chain, self._packed(chain)))
        self._outputs[binding.var] = output
        return _view(output, dims_of(binding.var.ty), str(binding.var.ty.dtype))

    def _given_filter(self, chain: EpilogueChain) -> Array:
        """Return a filter packed for its kernel, or the plain one if a step packs it."""
        kernel = self._kernel(chain)
        assert kernel is not None
        return plain_filter(chain.filter, chain.problem) if self._is_late(kernel) else kernel.packed(chain.filter)

    def _is_late(self, kernel: NetworkKernel | FreeKernel | None) -> bool:
        return self._packs_late and isinstance(kernel, NetworkKernel) and kernel.growth > MOST_GROWTH

    def _packed(self, chain: Followed) -> relax.Expr:
        """Return the filter operand of a chain's kernel."""
        kernel = self._kernel(chain)
        if isinstance(chain, DataProduct):
            tensor = self._given(chain.filter, chain, "filter")
        else:
            tensor = relax.const(self._filters[chain.output])
            if not self._is_late(kernel):
                return tensor
        assert isinstance(kernel, NetworkKernel)
        if kernel.pack is None:
            return tensor
        function = self._function((chain.problem, "tvmconv_pack"), kernel.pack)
        return self.builder_.emit(relax.call_tir(function, [tensor, tensor], kernel.packed_type))

    def _given(self, given: Any, chain: Followed, name: str) -> relax.Expr:
        """Return a tensor as the operand called `name`; another kernel's result is taken in its own layout."""
        tensor = self._outputs.get(given, self.visit_expr(given))
        if not isinstance(tensor, relax.Var):  # a new reshape or transposition
            tensor = self.builder_.emit(tensor)
        shape, dtype = chain.problem.operands[name]
        return self.builder_.emit(_view(tensor, _shape(chain, shape, given.ty), KERNEL_TYPES[dtype].name))

    def _call(self, chain: Followed, filter_: relax.Expr) -> relax.Call:
        kernel, dtype = self._kernel(chain), KERNEL_TYPES[chain.problem.types.output].name
        operands = chain.problem.operands
        arrays: dict[str, Any] = {"filter": filter_}
        for name, given in (("data", chain.data), ("residual", chain.residual)):
            if given is not None:
                arrays[name] = self._given(given, chain, name)
        arrays |= {name: relax.const(elements(vector, operands[name][1])) for name, vector in chain.vectors.items()}
        args = [arrays[name] for name in operands]
        made = relax.TensorType(_shape(chain, chain.problem.output_shape, chain.output.ty), dtype)
        assert kernel is not None
        if isinstance(kernel, FreeKernel):
            ranks = [each.ty.ndim for each in (*args, chain.output)]
            function = kernel.function(chain.problem.pads_begin, [*ranks[:-1], len(made.shape.values)])
        else:
            function = kernel.function
        return relax.call_tir(self._function((_key(chain), _name(chain)), function), args, made)

    def _function(self, key: tuple[Any, str], function: Any) -> Any:
        """Return the module's function for a key that ends with its name, adding it at first."""
        if key not in self._functions:
            self._functions[key] = self.builder_.add_func(function, key[1])
        return self._functions[key]


def _name(chain: Followed) -> str:
    return "tvmconv_product" if isinstance(chain, DataProduct) else f"tvmconv_{chain.problem.op}"


def _key(chain: Followed) -> Any:
    return chain.problem if chain.family is None else (chain.family, chain.problem.pads_begin)


def _shape(chain: Followed, fixed: tuple[int, ...], type_: Any) -> tuple[Any, ...]:
    """Return the shape of a kernel's argument for a tensor of a type: `fixed`, unless extents are free."""
    dims = dims_of(type_)
    if not chain.free or dims is None or len(fixed) == 1:
        return fixed
    return (1, product(dims[:-1]), dims[-1]) if len(fixed) == 3 and chain.is_product else dims


def _view(tensor: relax.Var, shape: Any, dtype: str) -> relax.Expr:
    """Return a tensor reshaped, as the rows of a product are, or bf16 as the integers that kernels take."""
    if str(tensor.ty.dtype) != dtype:
        return relax.op.memory.view(tensor, shape, dtype)
    same = dims_of(tensor.ty)
    is_same = same is not None and len(same) == len(shape) and all(map(equal, same, shape))
    return tensor if is_same else relax.op.reshape(tensor, shape)
