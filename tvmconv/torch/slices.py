"""`cut`: which part of a segment is computed a few images at a time, so that caches keep what its layers hand on."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import Any

import torch
import torch.nn.functional as functional
from torch import fx, nn

from ..isa.machine import cache_bytes
from .layers import FusedConvolution
from .operators import option
from .pads import Pad
from .plan import Met
from .segments import Segment

# What a layer reads and writes of the images of a slice, if one alone is not more: as much as L2 caches keep.
SLICE_BYTES = 1 << 20

# Of the tensors of all images that a node reads and writes: what fewer bytes take stays in an L3. On one core of
# a Zen 3, layers of 8 images at once took 1.1 to 2.2 times as long as one after the other where these took 5.6 MB and more
# (MobileNetV2, EfficientNet-B0, ResNet-50), and 0.9 times as long where they took 5 MB or less.
KEPT_BYTES = 5 << 20
# Of an L3 what a network's tensors find of it: KEPT_BYTES of 32 MB.
L3_PART = 6
# What a byte costs that comes from memory, beside one of a filter that is read once more, from L3 and ahead. One
# core of a Zen 3: ResNet-50's layers of 14x14 pixels, whose filters are as large as the tensors of 8 images, gained 10 to 40 %,
# those of 7x7 nothing. Where that cache keeps tensors, too, theirs cost the same. Two cores of a Granite Rapids, of 480 MB, in bf16,
# 8 images, milliseconds by 4 and by 1: ResNet-50 33.1 and 29.5, Inception v3 45.3 and 42.0, CSPDarknet 62.8 and 61.3.
MEMORY_BYTE = 4

# Operators whose results, image by image, depend on the same image of the first tensor that they read, if it has an axis
# beside images and channels.
_MODULES = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d,
    nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.GroupNorm,
    nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.Sigmoid, nn.Tanh, nn.Hardsigmoid, nn.SiLU, nn.Hardswish, nn.GELU, Pad,
)  # fmt: skip
_FUNCTIONS = (
    functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d,
    functional.max_pool1d, functional.max_pool2d, functional.max_pool3d, functional.interpolate,
    functional.relu, functional.relu6, functional.leaky_relu, functional.elu, functional.sigmoid, functional.tanh,
    functional.hardsigmoid, functional.silu, functional.hardswish, functional.gelu,
    torch.relu, torch.sigmoid, torch.tanh, "relu", "sigmoid", "tanh",
)  # fmt: skip
_ARITHMETIC = (
    operator.add, operator.sub, operator.mul, operator.truediv, torch.add, torch.sub, torch.mul, torch.div,
    "add", "sub", "mul", "div",
)  # fmt: skip


@dataclass(frozen=True)
class Cut:
    """The part of a segment from node `start` to before `stop`, computed `images` at a time.

    `by_image` are the nodes of the segment, and its inputs, whose first axis is that of images.
    """

    start: int
    stop: int
    images: int
    by_image: frozenset[Any]


def cut(segment: Segment, modules: Mapping[str, nn.Module], met: Mapping[Any, Any]) -> Cut | None:
    """Return the part of a segment that is best computed a few images at a time, None if there is none.

    A layer that is computed so reads its filter more often, and what it reads and writes beside may stay in a cache. So
    the part is that which spares most.

    Parameters
    ----------
    segment, modules
        The segment, and the modules that its nodes call.
    met
        What was seen of each node, and of each input, of the whole batch.
    """
    shapes = [met[node].shape for node in segment.inputs if node.op != "get_attr" and isinstance(met[node], Met)]
    batch = max((shape[0] for shape in shapes if len(shape) > 2), default=1)
    if batch < 2:
        return None
    by_image = _by_image(segment, modules, met, batch)
    gains = [_gain(node, modules, met, batch) if node in by_image else -inf for node in segment.nodes]
    start, stop = _best(gains, [_ends_well(segment, modules, stop) for stop in range(len(gains) + 1)])
    sizes = [_bytes(node, met) // batch for node in segment.nodes[start:stop] if _is_layer(node, modules)]
    if not sizes:
        return None
    images = max(n for n in range(1, batch + 1) if batch % n == 0 and (n == 1 or n * max(sizes) <= SLICE_BYTES))
    return Cut(start, stop, images, frozenset(by_image)) if images < batch else None


def _is_layer(node: Any, modules: Mapping[str, nn.Module]) -> bool:
    return node.op == "call_module" and isinstance(modules[node.target], FusedConvolution)


def _by_image(segment: Segment, modules: Mapping[str, nn.Module], met: Mapping[Any, Any], batch: int) -> set[Any]:
    """Return the nodes and inputs whose first axis is that of images."""
    known = {node for node in segment.inputs if node.op != "get_attr" and _has_images(met[node], batch)}
    for node in segment.nodes:
        if _has_images(met[node], batch) and _keeps_images(node, modules, met, known):
            known.add(node)
    return known


def _has_images(met: Any, batch: int) -> bool:
    return isinstance(met, Met) and len(met.shape) > 2 and met.shape[0] == batch


def _keeps_images(node: Any, modules: Mapping[str, nn.Module], met: Mapping[Any, Any], known: set[Any]) -> bool:
    """Whether an image of what a node computes depends on that image of what it reads alone."""
    read = node.all_input_nodes
    if not node.args or not any(each in known for each in read):
        return False
    if node.op == "call_module":
        module = modules[node.target]
        whole = isinstance(module, FusedConvolution) and module.reflection is None and not module.lies_as_torch
        return all(each in known for each in read) and (whole or type(module) in _MODULES)
    if node.target in _ARITHMETIC:
        rank = len(met[node].shape)
        return all(len(met[each].shape) == rank if each in known else _is_for_all(met[each], rank) for each in read)
    rank = len(met[read[0]].shape)
    if node.target is torch.cat:
        return all(each in known for each in read) and option(node, 1, "dim", 0) % rank != 0
    if node.args[0] not in known:
        return False
    if node.target is functional.layer_norm:
        shape = option(node, 1, "normalized_shape")
        return len(met[shape] if isinstance(shape, fx.Node) else shape) < rank  # as `x.shape[1:]`
    if read != [node.args[0]]:
        return False
    if node.target in (torch.mean, "mean"):
        axes = option(node, 1, "dim")
        return axes is not None and all(axis % rank for axis in ([axes] if isinstance(axes, int) else axes))
    if node.target in (torch.permute, "permute"):
        axes = node.args[1] if isinstance(node.args[1], (tuple, list)) else node.args[1:]
        return bool(axes[0] % rank == 0)
    return node.target in _FUNCTIONS


def _is_for_all(met: Any, rank: int) -> bool:
    """Whether a tensor is the same for all images."""
    return isinstance(met, Met) and (len(met.shape) < rank or met.shape[0] == 1)


def _bytes(node: Any, met: Mapping[Any, Any]) -> int:
    """Return the bytes of what a node reads and writes."""
    tensors = (met[each] for each in (node, *node.all_input_nodes))
    return sum(each.bytes for each in tensors if isinstance(each, Met))


def _gain(node: Any, modules: Mapping[str, nn.Module], met: Mapping[Any, Any], batch: int) -> int:
    """Return the bytes that a node is spared: of tensors that caches do not keep, less those of reading its filter again."""
    size = _bytes(node, met)
    cost = 0 if size <= KEPT_BYTES else 1 if size <= l3_bytes() // L3_PART else MEMORY_BYTE
    spared = cost * size
    if not _is_layer(node, modules):
        return spared
    weight = modules[node.target].weight
    return spared - (batch - 1) * weight.numel() * weight.element_size()


@cache
def l3_bytes() -> int:
    """Return the bytes of L3; 0: nobody tells."""
    return (cache_bytes() or (0, 0))[1]


def _ends_well(segment: Segment, modules: Mapping[str, nn.Module], stop: int) -> bool:
    """Whether all that is computed before node `stop` and read from there on, or by others, is what layers compute.

    They write to where they are told.
    """
    after = set(segment.nodes[stop:])
    inside = set(segment.nodes)
    return all(
        _is_layer(node, modules)
        for node in segment.nodes[:stop]
        if any(u in after or u not in inside for u in node.users)
    )


def _best(gains: list[float], ends: list[bool]) -> tuple[int, int]:
    """Return where the part with the largest sum of gains begins and ends, of those that begin and end where one may."""
    best, found = 0.0, (0, 0)
    start, total = 0, 0.0
    for stop in range(1, len(gains) + 1):
        total += gains[stop - 1]
        if ends[stop] and total > best:
            best, found = total, (start, stop)
        if ends[stop] and total <= 0:
            start, total = stop, 0.0
    return found
