"""`watch`: a key of a model's computation for an example, from the operators of one call, without torch.export.

Reading a model by torch.export takes seconds, and its imports up to 100 MiB of memory. PyTorch runs a sequence of ATen's operators,
whatever a model's code: models with the same operators, operands and weights compute the same. The call sets torch.export's flags,
which models may ask for (``torch.compiler.is_exporting``).

There is no key where code may decide or compute by something that no operator shows: where it reads a tensor's numbers or its memory,
or a tensor that is no operator's result, argument or attribute of the model, or fills uninitialised memory.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from ..frontends.torch.memory import digest
from ..version import __version__
from .flat import Flat
from .unchanged import put_back

# Attributes of a tensor that depend on neither its numbers nor its memory.
_ASKED = {
    "dim", "ndim", "ndimension", "shape", "size", "__len__", "stride", "storage_offset", "numel", "nelement", "element_size", "itemsize",
    "nbytes", "dtype", "type", "is_floating_point", "is_complex", "is_signed", "device", "get_device", "is_cpu", "is_cuda", "is_mps",
    "is_xpu", "is_meta", "layout", "is_sparse", "is_mkldnn", "is_quantized", "is_contiguous", "is_nested", "requires_grad", "is_leaf",
    "is_inference", "is_conj", "is_neg", "grad", "grad_fn", "__iter__", "__setitem__", "_assert", "_set_grad_enabled",
}  # fmt: skip


class _Log:
    """Record of a call; arguments, weights and results of operators are numbered."""

    def __init__(self, flat: Flat, given: Sequence[torch.Tensor], *told: Any) -> None:
        self.sha = hashlib.sha256(repr((__version__, torch.__version__, *told)).encode())
        self.is_whole = True
        self._names = WeakTensorKeyDictionary()
        self._weights = WeakTensorKeyDictionary()
        self._count = 0
        for tensor in given:
            self.sha.update(self._shaped(tensor).encode())
            self.made(tensor)
        for path, module in flat.named_modules():
            for kind in (vars(module), module._parameters, module._buffers):
                for name, each in kind.items():
                    if isinstance(each, torch.Tensor):
                        self._weights[each] = f"{path}.{name}"

    def made(self, tensor: torch.Tensor) -> None:
        """Record a tensor as new, unless an in-place operator returned its argument."""
        if tensor not in self._names:
            self._names[tensor] = self._count
            self._count += 1

    def name(self, tensor: torch.Tensor, is_literal: bool = False) -> str:
        """Return a tensor's name; a weight's contains a digest of its numbers."""
        if tensor not in self._names and (is_literal or tensor in self._weights):
            if (
                type(tensor) not in (torch.Tensor, nn.Parameter)
                or tensor.layout != torch.strided
                or tensor.is_quantized
            ):
                self.is_whole = False
                return ""
            self._names[tensor] = f"{self._weights.get(tensor)} {self._shaped(tensor)} {digest(tensor)}"
        self.is_whole &= tensor in self._names
        return f"<{self._names.get(tensor)}>"

    @staticmethod
    def _shaped(tensor: torch.Tensor) -> str:
        return repr((tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device, tensor.requires_grad))


class _Operators(TorchDispatchMode):  # type: ignore[misc]
    """Sees all operators of ATen."""

    def __init__(self, log: _Log) -> None:
        super().__init__()
        self._log = log

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, without importing Dynamo, which sees no such call."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        log, name, kwargs = self._log, str(func), kwargs or {}
        with torch._C.DisableTorchFunction():
            is_literal = name == "aten.lift_fresh.default"  # a literal in the code
            given = pytree.tree_map_only(torch.Tensor, lambda each: log.name(each, is_literal), (args, kwargs))
            log.sha.update(repr((name, given)).encode())
            answer = func(*args, **kwargs)
            leaves = [each for each in pytree.tree_leaves(answer) if each is not None]
            log.is_whole &= name.startswith("aten.") and all(isinstance(each, torch.Tensor) for each in leaves)
            # Something other than an operator, such as generated code, may fill uninitialised memory.
            is_unset = name.startswith(("aten.empty", "aten.new_empty")) and leaves[0].numel() > 0
            log.is_whole &= not is_unset
            for each in leaves:
                if isinstance(each, torch.Tensor):
                    log.made(each)
        return answer


class _Looks(TorchFunctionMode):  # type: ignore[misc]
    """Mode that detects reads of tensors other than by operators."""

    def __init__(self, log: _Log) -> None:
        super().__init__()
        self._log = log

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        name = getattr(getattr(func, "__self__", None), "__name__", "") if name == "__get__" else name
        if name not in _ASKED:
            leaves = pytree.tree_leaves(answer)
            are_tensors = all(each is None or isinstance(each, torch.Tensor) for each in leaves)
            self._log.is_whole &= are_tensors and answer is not None
        return answer


def watch(flat: Flat, *options: Any) -> str:
    """Return a key of a model's computation for an example and the options; empty if there is none.

    It leaves the structure of the answers in `flat`.
    """
    if any(isinstance(each, torch.jit.ScriptModule) for each in flat.modules()):
        return ""
    given = [each.clone() for each in flat.tensors]  # the model may write to them
    log = _Log(flat, given, options, str(flat.structure().in_spec), flat.structure().given)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), put_back(flat):
        try:
            with exporting(), _Operators(log), _Looks(log):
                answers = flat(*given)
        except Exception:  # noqa: BLE001 (of many classes: the model's code may see that it is exported; torch.export says why)
            let_dynamo_forget()
            return ""
    structure = flat.structure()
    answers = [log.name(each) for each in answers]
    log.sha.update(
        repr((answers, structure.returned, str(structure.out_spec), structure.out_orders, structure.views)).encode()
    )
    return log.sha.hexdigest() if log.is_whole else ""


def let_dynamo_forget() -> None:
    """Let Dynamo compile code again that it skips because it first met it under a mode, such as torch.cond's."""
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset_code_caches()


@contextmanager
def exporting() -> Iterator[None]:
    """Set the flags that tell code that torch.export reads it."""
    flags = {
        name: value
        for name, value in vars(torch.compiler).items()
        if name in ("_is_compiling_flag", "_is_exporting_flag")
    }
    try:
        vars(torch.compiler).update(dict.fromkeys(flags, True))
        yield
    finally:
        vars(torch.compiler).update(flags)
