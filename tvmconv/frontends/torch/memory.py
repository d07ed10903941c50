"""Tensors that share memory until one is written to (PyTorch's copy-on-write), and digests of tensors.

``Tensor.data_ptr`` and ``Tensor.numpy`` expose writable memory, so PyTorch copies the tensor's memory before.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

# Address of a tensor's memory, which its views share; only for comparisons. Each call of a network reads it for all of the model's
# tensors, so it is a function in C.
address: Callable[[torch.Tensor], int] = torch._C._data_address
# Digests of tensors, with their versions and addresses at that time.
_DIGESTS: Any = WeakTensorKeyDictionary()


def digest(tensor: torch.Tensor, is_known: bool = False) -> str:
    """Return a digest of a tensor's numbers; if they cannot be read, its identity and version.

    Parameters
    ----------
    is_known
        Whether an earlier digest is enough, if PyTorch has counted no change since.
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
    """Return a tensor's memory and its layout there, only for comparisons: ``tensor.data`` may be set to another part of the same memory."""
    if tensor.layout != torch.strided:
        return (address(tensor),)
    return address(tensor), tensor.storage_offset(), tensor.shape, tensor.stride()


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with the same numbers in memory of its own, which other libraries may use."""
    return tensor.clone() if torch._C._is_cow_tensor(tensor) else tensor


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor of the same numbers: the tensor itself if it is one."""
    strided = tensor.detach() if tensor.layout is torch.strided else tensor.detach().to_dense()
    return strided.resolve_conj().resolve_neg().contiguous()


def numbers(tensor: torch.Tensor) -> Any:
    """Return a tensor's numbers as an array, only for reading."""
    return readable(tensor.detach()).numpy()


def octets(tensor: torch.Tensor) -> Any:
    """Return the bytes of a tensor's numbers as an array, only for reading."""
    flat = dense(tensor).flatten()
    # A single number is contiguous with any stride, but its bytes are not.
    return numbers(flat.as_strided(flat.shape, (1,)).view(torch.uint8))


def sharing(tensors: Iterable[torch.Tensor]) -> dict[int, torch.Tensor]:
    """Return tensors of the same numbers by the ``id`` of others, which share their memory until either is written to.

    Left out are tensors that PyTorch cannot share so: in memory that it did not allocate, as NumPy's, or that several tensors use; and
    subclasses of tensors and parameters.
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
