"""`Plan`: how a segment of a graph is computed for inputs of one kind, every kernel's call ready but for few addresses.

What the layers compute goes to memory that is used again when nobody reads it any more; what other parts of the graph read
is new in each call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import fx
from torch.utils import _pytree as pytree

from ..runtime.placing import Lifetime, place
from . import native
from .arena import BLOCKS, Block
from .calls import AddressedCall
from .layout import Layout
from .pools import MaxPool, max_pool_of
from .segments import Segment
from .writers import is_elementwise, writer_of

Readers = list[tuple[Any, int]]  # prepared calls, and which of their arrays


@dataclass(frozen=True)
class Layer:
    """A node that a kernel of the CPU computes; `residual` is the node of what is added."""

    call: AddressedCall
    bias: Any
    data: Any
    residual: Any


@dataclass(frozen=True)
class Met:
    """What was seen of a node's tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any
    bytes: int

    @classmethod
    def of(cls, tensor: Any) -> Met:
        """Return what is to be seen of a tensor."""
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.numel() * tensor.element_size())


def seen(value: Any) -> Any:
    """Return what was seen of a value: of tensors what they are like, of numbers their value."""
    if isinstance(value, torch.Tensor):
        return Met.of(value)
    return tuple(map(seen, value)) if isinstance(value, (tuple, list)) else value


class Plan:
    """A segment for inputs of one kind, with weights as they are.

    Parameters
    ----------
    segment
        What is computed.
    root
        The module whose graph it belongs to.
    layers
        The nodes that kernels compute.
    met
        For each node, what was seen of its value.
    """

    def __init__(self, segment: Segment, root: Any, layers: dict[Any, Layer], met: dict[Any, Any]) -> None:
        self.segment, self.root, self.layers, self.met = segment, root, layers, met
        self.pools: dict[Any, MaxPool] = {}
        kept: dict[Any, None] = {}  # in a block
        for node in segment.nodes:
            if node in segment.seen:
                continue
            if (pool := max_pool_of(root, node, met)) is not None and pool.data in kept:
                self.pools[node] = pool
            written = writer_of(root, node) and isinstance(met[node], Met) and not _gives_back(segment, node, met)
            if node in layers or node in self.pools or written:
                kept[node] = None
        owners = _owners(segment, root, list(kept), met)
        first = {node: step for step, node in enumerate(segment.nodes)}
        last = {owners[node]: segment.last[node] for node in kept}  # of those that share memory the latest comes last
        lifetimes = {owner: Lifetime(met[owner].bytes, first[owner], last[owner]) for owner in last}
        offsets, self.size = place([*lifetimes.values()])
        placed = dict(zip(lifetimes, offsets, strict=True))
        self.offsets = {node: placed[owner] for node, owner in owners.items()}
        self._bound: WeakKeyDictionary[Block, _Bound] = WeakKeyDictionary()

    def __call__(self, inputs: Sequence[Any], places: Mapping[Any, Any] | None = None) -> list[Any]:
        """Compute the segment; return its outputs. With `places`, which are all layers', they are written to these tensors.

        Raises
        ------
        RuntimeError
            If there is no memory, or a tensor has none.
        """
        block = BLOCKS.take(self.size)
        try:
            bound = self._bound.get(block)
            if bound is None:
                bound = self._bound[block] = _Bound(self, block)
            return bound(inputs, places)
        finally:
            BLOCKS.give(block)


class _Bound:
    """A plan whose calls have their addresses in a block."""

    def __init__(self, plan: Plan, block: Block) -> None:
        segment, layers = plan.segment, plan.layers
        self._inputs, self._outputs = segment.inputs, segment.outputs
        # Of layers that write to new memory: the layer, the node whose tensor has that memory, and what makes it.
        self._made = [
            (node, *_made(plan, node, layer.call.empty)) for node, layer in layers.items() if node not in plan.offsets
        ]
        made = {view for node, view, _ in self._made if view is not node}
        self._readers: dict[Any, Readers] = {node: [] for node in (*segment.inputs, *segment.nodes)}
        self._threads = 1
        self._prepared: list[Any] = []
        self._in_block = {}
        for node, offset in plan.offsets.items():
            met = plan.met[node]
            self._in_block[node] = block.tensor(offset, met.shape, met.strides, met.dtype)
        # The tensors of this call.
        self._values: dict[Any, Any] = {}
        self._steps: list[Callable[[], int | None]] = []
        for node in segment.nodes:
            if node in layers:
                self._steps += self._prepare(node, layers[node])
            elif node not in made and not self._view(plan, node, block):
                step = self._pool(plan, node) if node in plan.pools else self._within(plan, node)
                self._steps.append(step or self._by_torch(plan, node))

    def __call__(self, inputs: Sequence[Any], places: Mapping[Any, Any] | None) -> list[Any]:
        values = self._values
        try:
            if self._threads != (threads := torch.get_num_threads()):
                self._threads = threads
                for call in self._prepared:
                    call.set_threads(threads)
            values.update(self._in_block)
            for node, value in zip(self._inputs, inputs, strict=True):
                values[node] = value
                self._tell(node, value)
            for node, view, make in self._made:
                values[view] = value = make() if places is None else places[node]
                self._tell(node, value)
            for step in self._steps:
                if step():
                    raise RuntimeError("a kernel fails")
            return [values[node] for node in self._outputs]
        finally:
            values.clear()

    def _tell(self, node: Any, tensor: Any) -> None:
        """Give the address of a node's tensor to the calls that read or write it."""
        readers = self._readers[node]
        if readers:
            address = tensor.data_ptr()
            for call, array in readers:
                call.set_address(array, address)

    def _prepare(self, node: Any, layer: Layer) -> list[Callable[[], int | None]]:
        """Return the steps of a kernel's call: copies of what it cannot read as it lies, and the call."""
        steps: list[Callable[[], int | None]] = []
        call = layer.call.kernel.prepared()
        self._prepared.append(call)
        call.set_address(1, layer.call.filter_address)
        arrays = [(layer.data, 0, layer.call.copied), (node, -1, False)]
        if layer.bias is not None:
            call.set_address(2, layer.bias.data_ptr())
        if layer.call.factors is not None:
            call.set_address(2 + (layer.bias is not None), layer.call.factors.data_ptr())
        if layer.residual is not None:
            arrays.append((layer.residual, -2, layer.call.residual_copied))
        for other, array, copied in arrays:
            if copied:
                shape = layer.call.shape if array == -2 else None  # of what is added
                steps.append(self._copy(other, call, array, layer.call.layout, shape))
            elif other in self._in_block:
                call.set_address(array, self._in_block[other].data_ptr())
            else:
                self._readers[other].append((call, array))
        return [*steps, call.run]

    def _copy(self, node: Any, call: Any, array: int, layout: Layout, shape: Any) -> Callable[[], None]:
        values = self._values

        def step() -> None:
            # Kept until the end under a key of its own.
            tensor = values[node] if shape is None else values[node].expand(shape)
            values[call, array] = copy = native.laid_out(layout, tensor)
            call.set_address(array, copy.data_ptr())

        return step

    def _view(self, plan: Plan, node: Any, block: Block) -> bool:
        """Whether a node is a view of what lies in the block, where it stays the same in each call."""
        if node not in plan.segment.views or not all(each in self._in_block for each in node.all_input_nodes):
            return False
        value = computing(plan.root, node)(self._in_block)
        if seen(value) != plan.met[node] or not all(map(block.holds, pytree.tree_leaves(value))):
            return False
        self._in_block[node] = value
        return True

    def _pool(self, plan: Plan, node: Any) -> Callable[[], None]:
        """Return the step that pools what lies in the block."""
        pool = plan.pools[node]
        return pool.bind(self._in_block[pool.data], self._in_block[node])

    def _within(self, plan: Plan, node: Any) -> Callable[[], None] | None:
        """Return the step that computes a node whose tensors all lie in the block, where they stay; None for any other."""
        function, tensors = writer_of(plan.root, node), self._in_block
        if function is None or node not in tensors or not all(each in tensors for each in node.all_input_nodes):
            return None
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), tensors.__getitem__)
        if hasattr(function, "bind"):
            call = function.bind(*args, **kwargs, out=tensors[node])
        else:
            call = functools.partial(function, *args, **kwargs, out=tensors[node])

        def step() -> None:
            call()

        return step

    def _by_torch(self, plan: Plan, node: Any) -> Callable[[], None]:
        """Return the step that computes a node as PyTorch does."""
        values, expected, out = self._values, plan.met[node], self._in_block.get(node)
        function = None if out is None else writer_of(plan.root, node)
        compute = computing(plan.root, node, function, out)
        dead = [each for each in plan.segment.dead_after[node] if each not in self._in_block]

        def step() -> None:
            values[node] = value = compute(values)
            if seen(value) != expected or (out is not None and value is not out):
                raise RuntimeError(f"{node} has another shape than it had")
            self._tell(node, value)
            for each in dead:
                del values[each]

        return step


def _made(plan: Plan, node: Any, make: Callable[[], Any]) -> tuple[Any, Callable[[], Any]]:
    """Return the node whose new tensor a layer writes to, and what makes that tensor.

    That is a view that alone reads what the layer computes, if its memory holds all of that: making it then is no step. Within
    MobileNetV3 on two cores of a Granite Rapids, in f32, that step was 48 of 2200 us, in code that caches had not kept.
    """
    users = [*node.users]
    if node in plan.segment.outputs or len(users) != 1 or users[0] not in plan.segment.views:
        return node, make
    (view,) = users
    if view.all_input_nodes != [node] or view not in plan.segment.outputs or not isinstance(plan.met[view], Met):
        return node, make
    base, met = make(), plan.met[view]
    value = computing(plan.root, view)({node: base})
    make_view = functools.partial(torch.empty_strided, met.shape, met.strides, dtype=met.dtype, device="cpu")
    fits = make_view().untyped_storage().nbytes() >= base.untyped_storage().nbytes()
    if seen(value) != met or value.data_ptr() != base.data_ptr() or not fits:
        return node, make
    return view, make_view


def _gives_back(segment: Segment, node: Any, met: Mapping[Any, Any]) -> bool:
    """Whether a node's tensor is like what it reads, and may be that: pads of nothing."""
    return node in segment.views and met[node] == met.get(node.args[0])


def _owners(segment: Segment, root: Any, kept: Sequence[Any], met: dict[Any, Any]) -> dict[Any, Any]:
    """Return for each node that lies in a block whose memory it takes: its own, or that of what it alone reads last."""
    owners: dict[Any, Any] = {}
    for node in kept:
        owners[node] = node
        if not is_elementwise(root, node):
            continue
        step = segment.nodes.index(node)
        for read in node.all_input_nodes:
            # What it reads beside must not be a view of that, which other elements of it are written under.
            others = [each for each in node.all_input_nodes if each is not read]
            dies = read in owners and segment.last[read] == step and met[read] == met[node]
            if dies and not any(read in segment.bases(other) for other in others):
                owners[node] = owners[read]
                break
    return owners


def computing(
    root: Any, node: Any, function: Callable[..., Any] | None = None, out: Any = None
) -> Callable[[dict[Any, Any]], Any]:
    """Return what computes a node of a graph from the values of others; with `function`, into `out`."""
    module = root.get_submodule(node.target) if node.op == "call_module" else None

    def compute(values: dict[Any, Any]) -> Any:
        args = fx.map_arg(node.args, values.__getitem__)
        kwargs = fx.map_arg(node.kwargs, values.__getitem__)
        if function is not None:
            return function(*args, **kwargs, out=out)
        if module is not None:
            return module(*args, **kwargs)
        if node.op == "call_method":
            return getattr(args[0], node.target)(*args[1:], **kwargs)
        return node.target(*args, **kwargs)

    return compute
