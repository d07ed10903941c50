"""`head_of`: the first part of a program, computed a few images at a time, so that caches keep its tensors.

Layers then read their filters more often, and their data and outputs may stay in a cache.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import fx

from ..isa.machine import cache_bytes
from .flat import order_of

# Threads share one slice; more than these have too little work each.
MOST_THREADS = 4
# Most bytes of a slice that a layer reads and writes, unless one image has more: what L2 caches keep.
SLICE_BYTES = 1 << 20
# Bytes of all images' tensors that a layer reads and writes, below which they stay in an L3 of 32 MB.
KEPT_BYTES = 5 << 20
# Inverse of the share of an L3 that keeps a network's tensors: KEPT_BYTES of 32 MB.
L3_PART = 6
# Cost of a byte from memory, relative to a byte of a filter that is read again, prefetched from L3: of 8 images, ResNet-50's layers of
# 14x14 pixels gain, those of 7x7 do not. Bytes of tensors that L3 keeps cost as much as a filter's.
MEMORY_BYTE = 4

# ATen's operators that compute each image of the result from the same image of the operands.
_ALIKE = {
    "_native_batch_norm_legit_no_training", "relu", "leaky_relu", "hardtanh", "clamp", "clamp_min", "clamp_max", "sigmoid",
    "tanh", "silu", "hardswish", "hardsigmoid", "gelu", "elu", "clone", "add", "sub", "mul", "div", "max_pool2d_with_indices",
    "max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d", "adaptive_avg_pool1d", "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d",
    "upsample_bilinear2d", "upsample_trilinear3d", "convolution", "constant_pad_nd",
}  # fmt: skip
_POOLS = {name for name in _ALIKE if "pool" in name or "upsample" in name}


@dataclass(frozen=True)
class Head:
    """The first `count` operators of a program, computed `images` at a time."""

    count: int
    images: int


def head_of(graph: fx.GraphModule) -> Head | None:
    """Return the first part of a decomposed program that is best computed a few images at a time; None: there is none."""
    inputs = graph.graph.find_nodes(op="placeholder")
    sizes = {each.meta["val"].shape[0] if each.meta["val"].dim() else 0 for each in inputs}
    if len(sizes) != 1 or torch.get_num_threads() > MOST_THREADS:
        return None
    (batch,) = sizes
    if batch < 2 or not all(_has_images(each, batch) for each in inputs):
        return None
    known, calls = set(inputs), [node for node in graph.graph.nodes if node.op == "call_function"]
    best, found, total = 0.0, 0, 0.0
    for at, node in enumerate(calls):
        if at and _name(node) == "convolution" and total > best and _ends_well(calls, at, batch):
            best, found = total, at
        if not _keeps_images(node, known, batch):
            break
        known.add(node)
        total += _gain(node, batch)
    layers = [_bytes(node) // batch for node in calls[:found] if _name(node) == "convolution"]
    if not layers:
        return None
    images = max(n for n in range(1, batch + 1) if batch % n == 0 and (n == 1 or n * max(layers) <= SLICE_BYTES))
    return Head(found, images) if images < batch else None


def first_images(args: Any, images: int) -> Any:
    """Return the first images of each tensor of arguments."""
    return torch.utils._pytree.tree_map_only(torch.Tensor, lambda each: each[:images], args)


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", "")).partition(".")[0]


def _has_images(node: fx.Node, batch: int) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.dim() > 2 and value.shape[0] == batch and order_of(value)[0] == 0


def _keeps_images(node: fx.Node, known: set[fx.Node], batch: int) -> bool:
    """Return whether each image of a node's result depends on the same image of its data alone."""
    if node.target is operator.getitem:
        return node.args[0] in known
    name, value = _name(node), node.meta.get("val")
    first = value[0] if isinstance(value, (tuple, list)) else value
    if not isinstance(first, torch.Tensor) or first.dim() < 3 or first.shape[0] != batch:
        return False
    images = [each for each in node.all_input_nodes if each in known]
    others = [each for each in node.all_input_nodes if each not in known]
    if not images or any(each.op != "get_attr" for each in others):
        return False
    rank = first.dim()
    if name in ("add", "sub", "mul", "div"):  # a fixed operand is the same for all images
        fixed = [each.meta["val"] for each in others]
        return all(each.dim() < rank or each.shape[0] == 1 for each in fixed) and all(
            each.meta["val"].dim() == rank for each in images
        )
    if name == "cat":
        return not others and int(node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)) % rank != 0
    if name == "mean":
        return len(node.args) > 1 and bool(node.args[1]) and all(int(axis) % rank for axis in node.args[1])
    if name == "permute":
        return int(node.args[1][0]) % rank == 0
    if name == "constant_pad_nd" and len(node.args[1]) > 2 * (rank - 1):
        return False
    return name in _ALIKE and images == [node.args[0]]


def _bytes(node: fx.Node) -> int:
    """Return the bytes of a node's result and operands, without weights."""
    values = [each.meta["val"] for each in (node, *node.all_input_nodes) if each.op != "get_attr"]
    first = [each[0] if isinstance(each, (tuple, list)) else each for each in values]
    return sum(each.numel() * each.element_size() for each in first)


def _gain(node: fx.Node, batch: int) -> float:
    """Return the cost that slices spare a node: of tensors that caches do not keep, less that of reading its filter again.

    Elementwise operators after a convolution are part of its kernel, and cost nothing.
    """
    name = _name(node)
    if name != "convolution" and name not in _POOLS:
        return 0.0
    size = _bytes(node)
    cost = 0 if size <= KEPT_BYTES else 1 if size <= l3_bytes() // L3_PART else MEMORY_BYTE
    filters = [each.meta["val"] for each in node.all_input_nodes[1:] if each.op == "get_attr"]
    return float(cost * size - (batch - 1) * sum(each.numel() * each.element_size() for each in filters))


@cache
def l3_bytes() -> int:
    """Return the bytes of L3; 0 if they are unknown."""
    return (cache_bytes() or (0, 0))[1]


def _ends_well(calls: Sequence[fx.Node], stop: int, batch: int) -> bool:
    """Return whether no convolution is separated from its epilogue, and all tensors that pass the cut have images."""
    after, before = set(calls[stop:]), calls[:stop]
    for node in before:
        later = [user for user in node.users if user in after or user.op == "output"]
        if later and (not _has_images(node, batch) or (_name(node) == "convolution" and any(_name(user) != "convolution" for user in later))):  # fmt: skip
            return False
    return True
