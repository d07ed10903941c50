"""Memory for intermediate tensors: where each lies, and the blocks that hold them, one for each call at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch

from ..runtime.pages import huge_pages

# A cache line, from which kernels read best.
_ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """How many bytes are needed from step `first` to step `last`."""

    size: int
    first: int
    last: int


def place(lifetimes: Sequence[Lifetime]) -> tuple[list[int], int]:
    """Return an offset for each of these, so that none overlap that live at the same time; and the bytes of all.

    Each goes, in the order given, to the first slot that is free while it lives: to what was used last, which caches still hold.
    There it lies in the middle. Threads share most tensors from their first rows to their last, so that each thread, with tensors
    of any size, finds lines in its own cache: those that another core wrote are written at 14 GB/s on a Granite Rapids, not at 65.
    """
    slots: list[list[Lifetime]] = []
    taken: list[int] = []
    for each in lifetimes:
        apart = (all(other.last < each.first or each.last < other.first for other in slot) for slot in slots)
        number = next((number for number, free in enumerate(apart) if free), len(slots))
        if number == len(slots):
            slots.append([])
        slots[number].append(each)
        taken.append(number)
    sizes = [-(-max(each.size for each in slot) // _ALIGNMENT) * _ALIGNMENT for slot in slots]
    *begins, end = accumulate(sizes, initial=0)
    firsts = [begins[number] + (sizes[number] - each.size) // 2 for number, each in zip(taken, lifetimes, strict=True)]
    return [first // _ALIGNMENT * _ALIGNMENT for first in firsts], end


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
