"""`Answering`: a module's calls, answered by networks where there are some for its arguments, else by its own code."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from ..errors import InputError, TvmconvWarning
from ..frontends.torch.memory import Shared, address
from .computed import Computed
from .flat import flattened
from .objects import KINDS

# The attribute of a model that has, by the paths of its modules, why their own code runs.
REFUSED = "_tvmconv_refused"
LET_GO = "its weights were let go (keep_weights=False); let tvmconv.torch.optimize keep them"
_VERSION = operator.attrgetter("_version")
_PLAIN = (torch.Tensor, nn.Parameter)


class Answering:
    """Is the ``forward`` of one module: networks answer calls that are as an example was.

    Parameters
    ----------
    module
        The module, whose own code answers all else.
    path
        Its name in the model, empty for the model itself.

    Attributes
    ----------
    examples
        What computes each example, by what is told of its arguments.
    refused
        Why calls were answered by the module's own code.
    has_weights
        Whether that can answer: weights that networks have may have been let go.
    rewrites
        Whether that writes weights, the same in each call.
    """

    def __init__(self, module: nn.Module, path: str, rewrites: bool) -> None:
        self.module, self.path, self.rewrites = module, path, rewrites
        self.examples = _Examples()
        self.refused: dict[str, None] = {}
        self.has_weights = True
        self._state: State | None = None
        self._own = vars(module).get("forward")  # as some that wrap a module's calls put there

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any], how: Computed) -> None:
        """Let networks answer calls that are as an example is."""
        leaves, spec = flattened(args, kwargs)
        self.examples[_kind(leaves, spec)] = how

    def watch(self) -> None:
        """From now on, notice what changes in the module."""
        self._state = State(self.module)

    def answer(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's answer."""
        if torch.compiler.is_compiling() or self._state is None:
            if not self.has_weights:
                raise InputError(f"{self.path or 'the model'} cannot be compiled again: {LET_GO}")
            return self._by_code(*args, **kwargs)
        leaves, spec = flattened(args, kwargs)
        why = _obstacle(leaves) or self._state.changed()
        found = None if why else self.examples.get(_kind(leaves, spec))
        if found is not None:
            return found([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
        why = why or f"there is no network for {_described(leaves)}"
        if not self.has_weights:
            raise InputError(
                f"{self.path or 'the model'}: {why}, and PyTorch cannot compute it: {LET_GO}, or give it an example of this call"
            )
        self._refuse(why, warned=why.startswith("there is"))
        is_same = self.rewrites and not self._state.changed()
        answer = self._by_code(*args, **kwargs)
        if is_same:  # but for weights that each call writes again
            self.watch()
        return answer

    def _by_code(self, *args: Any, **kwargs: Any) -> Any:
        if self._own is not None:
            return self._own(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    def _refuse(self, why: str, warned: bool) -> None:
        if why in self.refused:
            return
        self.refused[why] = None
        if warned:
            warnings.warn(
                f"{self.path or 'the model'}: {why}: PyTorch computes it; give tvmconv.torch.optimize an example of it, too",
                TvmconvWarning,
                stacklevel=5,
            )

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """A copy in another process may lack a library."""
        self.__dict__.update(state)
        for kind, each in list(self.examples.items()):
            if each.lost:
                del self.examples[kind]
                self._refuse(each.lost, warned=True)


class _Examples(dict[Any, Computed]):
    """What computes each example. Nothing of it changes but that some may be lost; PyTorch's trees are written by its own means."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Examples:
        return _Examples(self)

    def __reduce__(self) -> Any:
        return _examples, ([(kind[1:], how) for kind, how in self.items()],)


def answering_of(module: nn.Module) -> Answering | None:
    """Return what answers a module's calls; None: its own code."""
    found = getattr(vars(module).get("forward"), "__self__", None)
    return found if isinstance(found, Answering) else None


def _examples(items: Sequence[tuple[Any, Computed]]) -> _Examples:
    return _Examples({(how.structure.in_spec, *kind): how for kind, how in items})


class State:
    """What a module's networks were compiled with: weights, modules, hooks, and which of them train."""

    def __init__(self, module: nn.Module) -> None:
        self._modules = list(module.modules())
        self._training = [each.training for each in self._modules]
        names = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks")
        self._live = [getattr(each, name) for each in self._modules for name in names]
        self._kept = [dict(each) for each in self._live]
        self._tensors = [
            tensor
            for each in self._modules
            for tensor in (*each._parameters.values(), *each._buffers.values())
            if tensor is not None
        ]
        self._counted = [each for each in self._tensors if not each.is_inference()]
        self._then: Any = self._now()
        self._shared = [Shared(each) for each in self._tensors]

    def changed(self) -> str:
        """Return what has changed since, or nothing."""
        if [each.training for each in self._modules] != self._training:
            return "modules of it have changed between training and evaluation"
        if not self._is_same():
            return "its weights, modules or hooks have changed"
        if torch.is_grad_enabled() and any(each.requires_grad for each in self._tensors):
            return "gradients are needed"
        return ""

    def _is_same(self) -> bool:
        try:
            if self._live != self._kept:
                return False
            now = self._now()
            if now != self._then and self._then and self._have_own(now):
                self._then = now
            return bool(now == self._then)
        except (RuntimeError, ValueError, TypeError):  # tensors that are others have no truth
            return False

    def _have_own(self, now: tuple[list[int], list[int]]) -> bool:
        """Whether all that changed is that tensors left memory that they shared, as for a copy or a look at it."""
        (versions, places), (versions_then, places_then) = now, self._then
        moved = (each for each, at, then in zip(self._shared, places, places_then, strict=True) if at != then)
        return bool(versions == versions_then) and all(each.has_own() for each in moved)

    def _now(self) -> tuple[list[int], list[int]]:
        return [*map(_VERSION, self._counted)], [*map(address, self._tensors)]

    def __getstate__(self) -> dict[str, Any]:
        """Of copies the tensors are others, and as these were if they have not changed by now."""
        return {**self.__dict__, "_then": self._is_same(), "_shared": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self._then = self._now() if self._then else None
        self._shared = [Shared(each) for each in self._tensors]


def _obstacle(leaves: list[Any]) -> str:
    """Return why the way that something is called is no network's, or nothing."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if (
        torch._C._len_torch_dispatch_stack()
        or any(not isinstance(each, DeviceContext) for each in _get_current_function_mode_stack())
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    ):
        return "its operators are watched or transformed"
    grad = torch.is_grad_enabled()
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            if grad and leaf.requires_grad:
                return "gradients are needed"
            if type(leaf) not in _PLAIN:
                return f"an argument is a {type(leaf).__name__}"
    return ""


def _kind(leaves: list[Any], spec: Any) -> Any:
    """Return what is told of arguments: it is another one where networks may not answer."""
    return spec, *[
        (leaf.shape, leaf.dtype, leaf.device.type, leaf.layout) if isinstance(leaf, torch.Tensor) else (type(leaf), repr(leaf) if isinstance(leaf, KINDS) else id(leaf))
        for leaf in leaves
    ]  # fmt: skip


def _described(leaves: list[Any]) -> str:
    parts = []
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor):
            where = "" if leaf.device.type == "cpu" else f" on {leaf.device}"
            parts.append(f"{'x'.join(map(str, leaf.shape))} {str(leaf.dtype).removeprefix('torch.')}{where}".strip())
        elif isinstance(leaf, KINDS):
            parts.append(repr(leaf))
        else:
            parts.append(f"a {type(leaf).__name__}")
    return ", ".join(parts) or "no arguments"
