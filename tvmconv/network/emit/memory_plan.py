"""`plan`: turn a Relax function of calls, with Ifs as calls of branches, into steps over arrays with places in memory.

Each value is a storage seen as an array: an input, weights, or what a step writes. Outputs are written to the caller's memory;
all other results to an arena, whose bytes are reused after their last reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from ...errors import SourceError
from ...runtime.networks.placing import Lifetime, largest_gap, place, slots_of, whole_lines
from ..ir.branches import branches_of
from ..ir.constants import DistinctArrays, constant
from ..ir.free import Dims, dims_of, equal
from ..ir.nodes import of_variable
from .beside import firsts_beside, with_beside
from .network_plan import COPY, IF, KEPT, Array, NetworkPlan, PlanStep, Region, Storage, bytes_of, is_fixed


def plan(
    functions: Mapping[str, relax.Function],
    name: str,
    workspaces: Mapping[str, int],
    nodes: Mapping[str, Sequence[str]],
) -> NetworkPlan:
    """Return the plan of the function called `name`.

    Parameters
    ----------
    workspaces
        The bytes that each function allocates.
    nodes
        The model's nodes by variables' names.

    Raises
    ------
    SourceError
        If the function has an operator that no step computes, such as a call of TVM's runtime.
    """
    planner = _Planner(functions, nodes)
    planner.place_outputs(planner.walk(functions[name], planner.inputs_of(functions[name])))
    planner.place_weights()
    planner.place_prepared()
    planner.place_arena(workspaces)
    return planner.plan


class _Planner:
    def __init__(self, functions: Mapping[str, relax.Function], nodes: Mapping[str, Sequence[str]]) -> None:
        self._functions, self._nodes = functions, nodes
        self.plan = NetworkPlan()
        self._values: dict[Any, Any] = {}
        self._weights: dict[int, Storage] = {}
        self._arrays = DistinctArrays()
        self._prepared: dict[tuple[str, tuple[Storage, ...]], PlanStep] = {}
        # Storages written by the current branch's steps, or outside of branches.
        self._written: set[Storage] = set()

    def inputs_of(self, function: relax.Function) -> list[Array]:
        """Return the network's inputs."""
        for number, each in enumerate(function.params):
            shape, dtype = _fixed_shape(each)
            storage = Storage(Region.INPUT, bytes_of(shape, dtype), number)
            self.plan.inputs.append(Array(storage, shape, dtype))
        return self.plan.inputs

    def walk(self, function: relax.Function, arguments: Sequence[Any]) -> Any:
        """Add a step for each binding; return the function's results."""
        self._values.update(zip(function.params, arguments, strict=True))
        for block in function.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise SourceError(
                        f"the shape of {binding.var.name} is known only at run time; give fixed shapes of the inputs"
                    )
                self._values[binding.var] = self._bound(binding.value, of_variable(self._nodes, binding.var.name))
        return self._array(function.body.body)

    def _bound(self, value: Any, nodes: tuple[str, ...] = ()) -> Any:
        if isinstance(value, relax.Tuple):
            return tuple(self._array(each) for each in value.fields)
        if isinstance(value, relax.TupleGetItem):
            return self._array(value.tuple_value)[value.index]
        if not isinstance(value, relax.Call):
            return self._array(value)
        name = getattr(value.op, "name", "")
        if name in ("relax.reshape", "relax.memory.view"):
            return self._view(value)
        if name == "relax.call_tir":
            return self._call(value, nodes)
        if (branches := branches_of(value)) is not None:
            return self._choose(value, *branches)
        if isinstance(value.op, tvm.ir.GlobalVar):
            return self.walk(self._functions[value.op.name_hint], [self._array(each) for each in value.args])
        raise needs_runtime(name or str(value.op))

    def _array(self, expr: Any) -> Any:
        if isinstance(expr, GenericConst):
            return self._constant(expr)
        if not isinstance(expr.ty, (relax.TensorType, tvm.ir.TupleType)):  # a number computed from free extents
            return Array(Storage(Region.NUMBER, 0), (expr,), "int64")
        if isinstance(expr, (relax.Tuple, relax.TupleGetItem)):
            return self._bound(expr)
        return self._values[expr]

    def _constant(self, expr: Any) -> Array:
        array = np.ascontiguousarray(constant(expr))
        shape, dtype = _fixed_shape(expr)
        number = self._arrays.number(array)
        storage = self._weights.setdefault(number, Storage(Region.WEIGHTS, array.nbytes, array=array))
        return Array(storage, shape, dtype)

    def _view(self, call: relax.Call) -> Array:
        base, (shape, dtype) = self._array(call.args[0]), _fixed_shape(call)
        return Array(base.storage, shape, dtype)

    def _call(self, call: relax.Call, nodes: tuple[str, ...]) -> Any:
        name, arguments = call.args[0].name_hint, [self._array(each) for each in call.args[1].fields]
        made = self._made(call)
        step = PlanStep(name, (*arguments, *made), nodes=nodes)
        if arguments and all(each.storage.region in KEPT for each in arguments) and all(map(is_fixed, made)):
            return self._prepare(step, arguments, made, call)
        self.plan.steps.append(step)
        return tuple(made) if _gives_several(call) else made[0]

    def _prepare(self, step: PlanStep, arguments: list[Array], made: list[Array], call: relax.Call) -> Any:
        """Add a step that depends on weights alone, once for equal arguments; return its results."""
        for each in made:
            each.storage.region = Region.PREPARED
            self._written.discard(each.storage)
        step = self._prepared.setdefault((step.function, tuple(each.storage for each in arguments)), step)
        made = list(step.arguments[len(arguments) :])
        return tuple(made) if _gives_several(call) else made[0]

    def _choose(self, call: relax.Call, names: Sequence[str], arguments: Sequence[Sequence[Any]]) -> Any:
        """Plan both branches of an If one after the other; a call skips one of them. Return their common results."""
        condition = self._array(call.args[1].fields[0])
        branches = [
            (self._functions[name], [self._array(each) for each in given])
            for name, given in zip(names, arguments, strict=True)
        ]
        if condition.storage.region is Region.WEIGHTS:
            return self.walk(*branches[0 if condition.storage.array.any() else 1])
        made, outside, marks = self._made(call), self._written, []
        for function, given in branches:
            marks.append(len(self.plan.steps))
            self.plan.steps.append(PlanStep(IF, () if marks[1:] else (condition,)))
            self._written = set()
            self._write_to(made, self.walk(function, given), marks[-1])
        self._written = outside
        ends = [marks[1], len(self.plan.steps) - 1]
        for mark, end in zip(marks, ends, strict=True):
            self.plan.steps[mark] = replace(self.plan.steps[mark], passed=end - mark)
        return tuple(made) if _gives_several(call) else made[0]

    def _write_to(self, made: Sequence[Array], results: Any, begin: int) -> None:
        """Let a branch's steps, from number `begin` on, write to the common results; copy results that no step of it writes as a whole."""
        moved: dict[Storage, Storage] = {}
        copies = []
        for to, result in zip(made, results if isinstance(results, tuple) else (results,), strict=True):
            storage = result.storage
            if storage in self._written and storage not in moved and result.size == storage.size:
                moved[storage] = to.storage
            else:
                copies.append(PlanStep(COPY, (result, to)))
        self.plan.steps[begin:] = [
            replace(
                step,
                arguments=tuple(
                    replace(each, storage=moved.get(each.storage, each.storage)) for each in step.arguments
                ),
            )
            for step in (*self.plan.steps[begin:], *copies)
        ]

    def _made(self, call: relax.Call) -> list[Array]:
        """Return new arrays in the arena for a call's results."""
        made = []
        for type_ in call.ty_args[0].fields if _gives_several(call) else call.ty_args:
            shape, dtype = _fixed_type(type_, call)
            made.append(Array(Storage(Region.ARENA, bytes_of(shape, dtype)), shape, dtype))
        self._written.update(each.storage for each in made)
        return made

    def place_outputs(self, result: Any) -> None:
        """Let steps write to the outputs; copy results that are inputs, weights or repeated."""
        for number, each in enumerate(result if isinstance(result, tuple) else (result,)):
            storage = each.storage
            if storage.region is Region.ARENA and equal(each.size, storage.size):
                storage.region, storage.number = Region.OUTPUT, number
                self.plan.outputs.append(each)
                continue
            made = Array(Storage(Region.OUTPUT, each.size, number), each.shape, each.dtype)
            self.plan.steps.append(PlanStep(COPY, (each, made)))
            self.plan.outputs.append(made)

    def place_weights(self) -> None:
        """Place weights one after another, in order of use."""
        offset = 0
        for storage in self._weights.values():
            storage.offset, offset = offset, whole_lines(offset + storage.size)
            self.plan.weights.append(storage)

    def place_prepared(self) -> None:
        """Move steps that depend on weights alone to the front, and place their results one after another."""
        steps = list(self._prepared.values())
        offset = 0
        for storage in dict.fromkeys(each.storage for step in steps for each in step.arguments):
            if storage.region is Region.PREPARED:
                storage.offset, offset = offset, whole_lines(offset + storage.size)
        self.plan.prepared_bytes = offset
        self.plan.steps, self.plan.prepared = [*steps, *self.plan.steps], len(steps)

    def place_arena(self, workspaces: Mapping[str, int]) -> None:
        """Place results in the arena; those of steps that run at once must not overlap."""
        used: dict[Storage, list[int]] = {}
        needs: dict[int, int] = {}
        alone = list(range(len(self.plan.steps)))
        firsts = alone if self.plan.is_free else firsts_beside(self.plan.steps, self.plan.prepared)
        for first, step in zip(firsts, self.plan.steps, strict=True):
            for each in step.arguments:
                if each.storage.region is Region.ARENA:
                    used.setdefault(each.storage, []).append(first)
            needs[first] = needs.get(first, 0) + whole_lines(workspaces.get(step.function, 0))
        # Lifetimes as if both branches of an If ran, one after the other.
        lifetimes = [Lifetime(storage.size, numbers[0], numbers[-1]) for storage, numbers in used.items()]
        self.plan.steps = with_beside(self.plan.steps, firsts)
        if self.plan.is_free:
            self.plan.slots = dict(zip(used, slots_of(lifetimes), strict=True))
            self.plan.workspace_bytes = max(needs.values(), default=0)
            return
        offsets, self.plan.arena_bytes = place(lifetimes, {step: need for step, need in needs.items() if need})
        for storage, offset in zip(used, offsets, strict=True):
            storage.offset = offset
        self.plan.steps = [
            replace(step, free=largest_gap(lifetimes, offsets, self.plan.arena_bytes, first))
            for first, step in zip(firsts, self.plan.steps, strict=True)
        ]


def _gives_several(call: relax.Call) -> bool:
    return isinstance(call.ty_args[0], tvm.ir.TupleType)


def needs_runtime(what: str) -> SourceError:
    """Return the error for an operator that networks do not support."""
    return SourceError(
        f"the network needs {what}, which only TVM's runtime computes; cut the network before it (tvmconv compile --cut TENSOR),"
        " and compute the rest outside of it"
    )


def _fixed_shape(expr: Any) -> tuple[Dims, str]:
    return _fixed_type(expr.ty, expr)


def _fixed_type(type_: Any, expr: Any) -> tuple[Dims, str]:
    shape = dims_of(type_)
    if shape is None:
        name = getattr(expr, "name", "a value")
        raise SourceError(f"{name} has no fixed shape: {type_}; give the inputs' shapes")
    return shape, str(type_.dtype)
