"""Memory for intermediate tensors: the blocks that hold them, one for each call at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..runtime.pages import huge_pages


class Block:
    """Memory that one call at a time uses."""

    def __init__(self, size: int) -> None:
        self.size = size
        with torch.inference_mode(False):
            self.memory = torch.from_numpy(huge_pages(size))

    def tensor(self, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Any:
        """Return a tensor that lies in this memory."""
        with torch.inference_mode(False):
            return self.memory[offset:].view(dtype).as_strided(shape, strides)

    def holds(self, value: Any) -> bool:
        """Whether a value has no memory but this."""
        if not isinstance(value, torch.Tensor):
            return True
        return bool(value.untyped_storage().data_ptr() == self.memory.untyped_storage().data_ptr())


class Blocks:
    """The blocks that no call uses now: as many as calls ran at the same time, as large as the largest needed."""

    def __init__(self) -> None:
        self._free: list[Block] = []  # a list's pop and append are atomic

    def take(self, size: int) -> Block:
        """Return a block of at least `size` bytes, the caller's until it is given back."""
        try:
            block = self._free.pop()
        except IndexError:
            return Block(size)
        return block if block.size >= size else Block(size)

    def give(self, block: Block) -> None:
        """Take a block back."""
        self._free.append(block)


BLOCKS = Blocks()
