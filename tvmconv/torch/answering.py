"""`Answering`: a module's calls, answered by networks compiled for their arguments, else by the module's own code."""

from __future__ import annotations

import inspect
import threading
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from ..errors import InputError, TvmconvWarning
from .computed import Computed
from .flat import bind_as, flatten_arguments
from .guards.check import Guards
from .guards.reads import Reads
from .objects import KINDS

# Attribute of a model with the reasons why modules' own code runs, by their paths.
REFUSED = "_tvmconv_refused"
LET_GO = "its weights were let go (keep_weights=False); let tvmconv.torch.optimize keep them"
# Limit for models that keep changing: as many as Dynamo compiles of one function.
MOST_STATES = 8
# Kinds of calls for the fast path.
MOST_KINDS = 256
_PLAIN = (torch.Tensor, nn.Parameter)
_KIND = attrgetter("__class__", "shape", "dtype", "device", "layout")
_NEEDS_GRADIENT = attrgetter("requires_grad")
# Compiles a module again for a call: returns the reads of its code, and the computation, or why there is none.
Anew = Callable[["Answering", tuple[Any, ...], dict[str, Any]], tuple[Reads, "Computed | str"]]


@dataclass
class NetworkState:
    """Networks of a module in one state.

    Attributes
    ----------
    reads
        Names and variables that its code may have read.
    examples
        Each example's computation, by the kind of its arguments.
    guards
        Detect changes since.
    refused
        Why there are no networks.
    """

    reads: Reads = field(default_factory=Reads)
    examples: _Examples = field(default_factory=lambda: _Examples())
    guards: Guards | None = None
    refused: str = ""

    def find(self, kind: Any, leaves: Sequence[Any]) -> Computed | None:
        """Return the computation for arguments: an example's, or one with free extents; None if there is none."""
        spec, *_ = kind
        return self.examples.get(kind) or next((how for how in self.examples.values() if how.takes(leaves, spec)), None)

    def changed(self) -> str:
        """Return the first difference from the state at tracing, or nothing."""
        return self.guards.changed() if self.guards is not None else ""


class Answering:
    """Stands for the ``forward`` of a module: networks answer calls like the examples.

    Parameters
    ----------
    module
        The module, whose own code answers other calls.
    path
        Its name in the model, empty for the model itself.
    rewrites
        Whether its own code writes weights, with equal values in each call but for rounding.
    anew
        Compiles the module again after a change; None: its own code answers then.

    Attributes
    ----------
    states
        Its networks: the last compiled first.
    refused
        Why the module's own code answered calls.
    has_weights
        Whether its own code can answer: its weights may have been let go.
    """

    def __init__(self, module: nn.Module, path: str, rewrites: bool = False, anew: Anew | None = None) -> None:
        self.module, self.path, self._rewrites, self._anew = module, path, rewrites, anew
        self.states = [NetworkState()]
        self.refused: dict[str, None] = {}
        self.has_weights = True
        self._is_watching = False
        self._own = vars(module).get("forward")  # set by libraries that wrap a module's calls
        self._restart()

    def _restart(self) -> None:
        self._compiling = threading.Lock()
        self._signature = inspect.signature(self._code())
        self._plain: dict[Any, tuple[NetworkState, Computed]] = {}  # for calls with tensors alone, by their kinds

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any], how: Computed, reads: Reads) -> None:
        """Let networks answer calls like an example."""
        leaves, spec = flatten_arguments(args, kwargs)
        self.states[0].examples[_kind(leaves, spec)] = how
        self.states[0].reads |= reads

    def computed(self) -> list[Computed]:
        """Return the computations of examples, of each state."""
        return [how for state in self.states for how in state.examples.values()]

    def watch(self) -> None:
        """Answer calls from now on, and notice changes of the module."""
        self.states[0].guards = Guards(self.module, self.states[0].reads, own_forward)
        self._is_watching = True

    def leave(self) -> None:
        """Let the module's own code answer again."""
        del self.module.forward
        if self._own is not None:
            self.module.forward = self._own

    def forward(self) -> Any:
        """Return :meth:`answer`, with the signature of the module's own code."""
        answer = types.FunctionType(Answering.answer.__code__, globals(), "answer")
        signature, first = self._signature, inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
        answer.__signature__ = signature.replace(parameters=[first, *signature.parameters.values()])  # type: ignore[attr-defined]
        return types.MethodType(answer, self)

    def answer(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's answer."""
        if torch.compiler.is_compiling() or not self._is_watching:
            if not self.has_weights:
                raise InputError(f"{self.path or 'the model'} cannot be compiled again: {LET_GO}")
            return self.by_code(*args, **kwargs)
        if not kwargs and self._plain:
            try:
                found = self._plain.get(tuple(map(_KIND, args)))
            except AttributeError:  # an argument is no tensor
                found = None
            if found is not None and not (_mode() or found[0].changed() or self._needs_gradients(args)):
                return found[1](args)
        return self._answer(args, kwargs)

    def _answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        specs = [spec for state in self.states for spec, *_ in state.examples]
        args, kwargs = bind_as(self._signature, specs, args, kwargs)
        leaves, spec = flatten_arguments(args, kwargs)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        other = next((type(each).__name__ for each in tensors if type(each) not in _PLAIN), "")
        why = _mode() or (other and f"an argument is a {other}")
        why = why or ("gradients are needed" if self._needs_gradients(tensors) else "")
        kind, advice = _kind(leaves, spec), ""
        if not why:
            whys = [state.changed() for state in self.states]
            state = next((each for each, changed in zip(self.states, whys, strict=True) if not changed), None)
            found = state.find(kind, leaves) if state is not None else None
            if found is None and self._anew and self.states[-1].find(kind, leaves):
                state = self._compiled(args, kwargs, kind, leaves) or state
                found = state.find(kind, leaves) if state is not None else None
            if found is not None and state is not None:
                if not kwargs and all(type(each) is torch.Tensor for each in args):
                    if len(self._plain) >= MOST_KINDS:  # many kinds by free extents
                        self._plain.clear()
                    self._plain[tuple(map(_KIND, args))] = state, found
                return found(tensors)
            advice = "to compile it, give tvmconv.torch.optimize an example of it"
            if why := whys[-1]:
                advice = (
                    "" if self._anew else "to compile it, call tvmconv.torch.optimize again, or with changed='compile'"
                )
            else:
                why = f"not compiled for {_describe(leaves)}"
        if not self.has_weights:
            raise InputError(
                f"{self.path or 'the model'}: {why}, and PyTorch cannot compute it: {LET_GO}, or give it an example of this call"
            )
        self._refuse(why, advice)
        same = [state for state in self.states if self._rewrites and not state.changed()]
        answer = self.by_code(*args, **kwargs)
        for state in same:
            state.guards = Guards(self.module, state.reads, own_forward)
        return answer

    def _compiled(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], kind: Any, leaves: Sequence[Any]
    ) -> NetworkState | None:
        """Return networks for the module's present state, compiled unless another thread is compiling."""
        if self._anew is None or not self._compiling.acquire(blocking=False):
            return None
        try:
            state = next((each for each in self.states if not each.changed()), None)
            if state is not None and (state.find(kind, leaves) or state.refused):
                return state
            if state is None and len(self.states) == MOST_STATES:
                self._refuse(f"it has changed {MOST_STATES} times", "it is compiled no more")
                return None
            reads, how = self._anew(self, args, kwargs)
            if state is None:
                state = NetworkState(reads, guards=Guards(self.module, reads, own_forward))
                self.states.insert(0, state)
            if isinstance(how, str):
                state.refused = how
                self._refuse(f"it has changed, and cannot be compiled anew: {how}", "as before tvmconv.torch.optimize")
            else:
                state.examples[kind] = how
            return state
        finally:
            self._compiling.release()

    def _needs_gradients(self, tensors: Sequence[Any]) -> bool:
        if not torch.is_grad_enabled():
            return False
        guards = self.states[0].guards
        weights = guards.tensors if guards is not None else []
        return any(map(_NEEDS_GRADIENT, tensors)) or any(map(_NEEDS_GRADIENT, weights))

    def by_code(self, *args: Any, **kwargs: Any) -> Any:
        """Return the answer of the module's own code."""
        return self._code()(*args, **kwargs)

    def _code(self) -> Any:
        return self._own if self._own is not None else type(self.module).forward.__get__(self.module)

    def _refuse(self, why: str, advice: str) -> None:
        if why in self.refused:
            return
        self.refused[why] = None
        if advice:
            warnings.warn(f"{self.path or 'the model'}: {why}; using PyTorch: {advice}", TvmconvWarning, stacklevel=6)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_plain": None, "_compiling": None, "_signature": None}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """A copy in another process may lack a library."""
        self.__dict__.update(state)
        self._restart()
        for each in self.states:
            for kind, how in list(each.examples.items()):
                if how.lost:
                    del each.examples[kind]
                    self._refuse(how.lost, "its folder is needed")


class _Examples(dict[Any, Computed]):
    """Computations of examples. Copies share them; a copy in another process may lose some. PyTorch pickles its trees by its own functions."""

    def __deepcopy__(self, memo: dict[int, Any]) -> _Examples:
        return _Examples(self)

    def __reduce__(self) -> Any:
        return _examples, ([(kind[1:], how) for kind, how in self.items()],)


def answering_of(module: nn.Module) -> Answering | None:
    """Return the object that answers a module's calls; None if its own code does."""
    found = getattr(vars(module).get("forward"), "__self__", None)
    return found if isinstance(found, Answering) else None


def own_forward(forward: Any) -> Any:
    """Return a module's own ``forward`` attribute from before networks answered; None if it had its class's."""
    answering = getattr(forward, "__self__", None)
    return answering._own if isinstance(answering, Answering) else forward


def _examples(items: Sequence[tuple[Any, Computed]]) -> _Examples:
    return _Examples({(how.structure.in_spec, *kind): how for kind, how in items})


def _mode() -> str:
    """Return why no network may answer in PyTorch's present mode, or nothing."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if (
        torch._C._len_torch_dispatch_stack()
        or (torch._C._len_torch_function_stack() and not _is_device_alone())
        or torch._C._functorch.peek_interpreter_stack() is not None
        or torch._C._get_tracing_state() is not None
    ):
        return "its operators are watched or transformed"
    return ""


def _is_device_alone() -> bool:
    return all(isinstance(each, DeviceContext) for each in _get_current_function_mode_stack())


def _kind(leaves: list[Any], spec: Any) -> Any:
    """Return the kind of arguments: equal for calls that one network may answer."""
    return spec, *[
        (leaf.shape, leaf.dtype, leaf.device.type, leaf.layout) if isinstance(leaf, torch.Tensor) else (type(leaf), repr(leaf) if isinstance(leaf, KINDS) else id(leaf))
        for leaf in leaves
    ]  # fmt: skip


def _describe(leaves: list[Any]) -> str:
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
