"""Tensors that share memory until one of them is written to, as PyTorch's own copies on write do, and digests of numbers.

``Tensor.data_ptr`` and ``Tensor.numpy`` hand out memory that may be written to, so PyTorch gives the tensor memory of its own before.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

# Address of the beginning of a tensor's memory, which its views share; only to be compared. Each call of a network reads it of all
# the model's tensors, so it is C's function.
address: Callable[[torch.Tensor], int] = torch._C._data_address
# Digests of tensors, with their versions and addresses then.
_DIGESTS: Any = WeakTensorKeyDictionary()


def digest(tensor: torch.Tensor, is_known: bool = False) -> str:
    """Return a digest of a tensor's numbers; if they cannot be read, one of its identity and version.

    Parameters
    ----------
    is_known
        Whether a digest of before will do, if PyTorch has counted no change since.
    """
    now = 0 if tensor.is_inference() else tensor._version, place(tensor)
    found = _DIGESTS.get(tensor)
    if is_known and found is not None and found[0] == now and not tensor.is_inference():
        return str(found[1])
    if tensor.layout != torch.strided or tensor.is_quantized or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        return f"{id(tensor)} {now}"
    if tensor.is_meta:
        return ""
    made = hashlib.sha256(octets(tensor)).hexdigest()
    _DIGESTS[tensor] = now, made
    return made


def place(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return which numbers of which memory a tensor has, to be compared alone: ``tensor.data`` may be set to other ones of the same."""
    if tensor.layout != torch.strided:
        return (address(tensor),)
    return address(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same numbers in memory of its own, which other libraries may hold."""
    return tensor.clone() if torch._C._is_cow_tensor(tensor) else tensor


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same numbers, last axis fastest: itself, if it is so already."""
    strided = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    return strided.resolve_conj().resolve_neg().contiguous()


def numbers(tensor: torch.Tensor) -> Any:
    """Return a tensor's numbers as an array, to be read."""
    return readable(tensor.detach()).numpy()


def octets(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor's numbers as an array, to be read."""
    flat = dense(tensor).flatten()
    # With any stride a single number is contiguous, but not bytes.
    return numbers(flat.as_strided(flat.shape, (1,)).view(torch.uint8))


def sharing(tensors: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Return by the ``id`` of tensors others of the same numbers, which share their memory until either is written to.

    What PyTorch cannot share so is left out: memory that it did not allocate, as NumPy's, or that several tensors have; and whatever is
    more than a tensor or a parameter.
    """
    plain = {id(each): each for each in tensors if _is_plain(each)}
    owners = Counter(map(address, plain.values()))
    found = {}
    for number, each in plain.items():
        if owners[address(each)] > 1 or not each.nbytes:
            continue
        try:
            made = each.detach()._lazy_clone()
        except RuntimeError:
            continue
        is_parameter = isinstance(each, torch.nn.Parameter)
        found[number] = torch.nn.Parameter(made, each.requires_grad) if is_parameter else made
    return found


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and (tensor.layout, tensor.device.type) == (torch.strided, "cpu")
        and tensor.is_leaf
        and not (tensor.is_quantized or tensor.is_inference() or vars(tensor))
        and (isinstance(tensor, torch.nn.Parameter) or not tensor.requires_grad)
    )
