"""`NetworkCall`: a network's library called with tensors, by the threads of PyTorch."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..errors import InputError
from ..runtime.networks.network import Network
from ..runtime.networks.tensors import fits
from .flat import inverse

TYPES = {
    "float64": torch.float64, "float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16, "bool": torch.bool,
    "uint8": torch.uint8, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64,
}  # fmt: skip
_POINTER = torch.Tensor.data_ptr


class NetworkCall(nn.Module):  # type: ignore[misc]
    """Network called with tensors of its shapes and types.

    Parameters
    ----------
    path
        Its library.
    in_orders, out_orders
        For each input and output tensor, the order of its axes in the network's array.
    """

    def __init__(
        self, path: str | os.PathLike[str], in_orders: Sequence[Sequence[int]], out_orders: Sequence[Sequence[int]]
    ) -> None:
        super().__init__()
        self.network = Network(path)
        self.path, self.orders = self.network.file.path, (in_orders, out_orders)
        self._orders = [_or_none(order) for order in in_orders]
        backs = [_or_none(inverse(order)) for order in out_orders]
        outputs = self.network.outputs
        self._is_laid, self._is_free = not any(backs), bool(self.network.extents)
        self._made = [(each.shape, TYPES[each.dtype], back) for each, back in zip(outputs, backs, strict=True)]
        # empty_like takes half of the time of empty; nothing is written to these templates, so they occupy no memory.
        self._alike = [] if self._is_free else [torch.empty(shape, dtype=dtype) for shape, dtype, _ in self._made]

    def forward(self, *tensors: Any) -> list[Any]:
        """Return the network's outputs."""
        given = [*map(_array, tensors, self._orders)]
        if self._is_free:
            return self._returned(self._of_extents(given))
        made = [*map(torch.empty_like, self._alike)]
        self.network.run([*map(_POINTER, given)], [*map(_POINTER, made)], torch.get_num_threads(), True)
        return made if self._is_laid else self._returned(made)

    def _of_extents(self, given: Sequence[Any]) -> list[Any]:
        """Return the network's outputs for arrays with free extents."""
        extents, shapes = self.network.sizes([each.shape for each in given])
        made = [torch.empty(shape, dtype=dtype) for shape, (_, dtype, _) in zip(shapes, self._made, strict=True)]
        self.network.run([*map(_POINTER, given)], [*map(_POINTER, made)], torch.get_num_threads(), True, extents)
        return made

    def takes(self, tensors: Sequence[Any]) -> bool:
        """Return whether extents are free and the network takes those of the tensors."""
        if not self._is_free:
            return False
        shapes = []
        for tensor, order, wanted in zip(tensors, self._orders, self.network.inputs, strict=True):
            shape = tensor.shape if order is None else [tensor.shape[axis] for axis in order]
            kind = (tensor.device.type, tensor.layout, tensor.dtype)
            if kind != ("cpu", torch.strided, TYPES[wanted.dtype]) or not fits(wanted, shape):
                return False
            shapes.append(shape)
        try:
            self.network.sizes(shapes)
        except InputError:  # out of range, not a multiple, or an empty intermediate result
            return False
        return True

    def sliced(self, tensors: Sequence[Any]) -> list[Any]:
        """Return the network's outputs for tensors with more images (first axis) than it takes, a slice at a time."""
        given = [_array(tensor, order) for tensor, order in zip(tensors, self._orders, strict=True)]
        times = given[0].shape[0] // self.network.inputs[0].shape[0]
        made = [torch.empty((times * shape[0], *shape[1:]), dtype=dtype) for shape, dtype, _ in self._made]
        for number in range(times):
            data, answers = (
                [each.data_ptr() + number * (each.nbytes // times) for each in some] for some in (given, made)
            )
            self.network.run(data, answers, threads=torch.get_num_threads(), openmp=True)
        return self._returned(made)

    def _returned(self, made: Sequence[Any]) -> list[Any]:
        backs = (back for _, _, back in self._made)
        return [each if back is None else each.permute(back) for each, back in zip(made, backs, strict=True)]


def _or_none(order: Sequence[int]) -> list[int] | None:
    return None if list(order) == list(range(len(order))) else list(order)


def _array(tensor: Any, order: list[int] | None) -> Any:
    """Return a tensor in a network's order and contiguous."""
    tensor = tensor if order is None else tensor.permute(order)
    return (tensor.resolve_neg() if tensor.is_neg() else tensor).contiguous()
