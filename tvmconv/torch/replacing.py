"""`Replacing`: networks for a model, or for its submodules if it cannot be read as a whole."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.metadata import packages_distributions
from itertools import chain
from typing import Any

import torch
from torch import fx, nn
from torch.utils import _pytree as pytree

from ..errors import InputError, SourceError, TvmconvError, TvmconvWarning, UnsupportedMachineError
from ..frontends.torch.memory import address
from .answering import REFUSED, Answering, answering_of
from .computed import Computed, How, compute_model
from .examples import (
    Arguments,
    copy_answer,
    copy_tensors,
    draw_roundings,
    is_close,
    is_coarse,
    is_no_worse,
    run,
    run_exactly,
)
from .flat import distinct, find_views, flatten_arguments
from .guards.reads import Reads, record
from .letting_go import let_go
from .objects import take_apart
from .rewritten import copied_model, perturb
from .store import Store
from .unchanged import put_back
from .watched import exporting
from .weights import with_fixed_weights

# A submodule that is called in more ways within one call of its model keeps its own code.
_MOST_WAYS = 8
# Calls after which converging state, such as a weight that is normalized in place, changes by rounding alone.
_SETTLING = 3
_SHARES = "it returns a part of what it is given, or answers that share memory"
_Call = tuple[Arguments, Any]  # a module's arguments, and its answer


class Replacing:
    """Lets networks answer the calls of a model.

    Parameters
    ----------
    model
        The model, which is changed.
    store, how
        The folder of networks, and options of compiling them.
    anew
        Whether changed modules are compiled again.

    Attributes
    ----------
    refused
        Reasons why modules' own code runs, by their paths.
    networks
        Number of networks.
    elsewhere
        Whether some networks are for other machines only.
    answering
        The objects that answer for modules.
    """

    def __init__(self, model: nn.Module, store: Store, how: How, anew: bool = False) -> None:
        self._model, self._store, self._how = model, store, how
        self._anew = CompileAnew(store, how) if anew else None
        self.answering: list[Answering] = []
        self.refused: dict[str, str] = {}
        self.networks = 0
        self.elsewhere = False
        self._written: list[str] = []
        self._rewrites = False
        self._seen: set[nn.Module] = set()

    def replace(self, examples: list[Arguments]) -> None:
        """Compile networks for examples of the model's arguments."""
        settling = 1
        for example in examples:
            changed = self._changed(example, 1)
            if changed and not (changed := self._changed(example, _SETTLING)):
                settling = _SETTLING
            self._written += changed
        if not self._written:
            for example in examples * settling:
                self._run(example)
        self._replace({"": self._model}, examples)

    def _changed(self, example: Arguments, calls: int) -> list[str]:
        """Return the names of attributes that calls change, unless each call writes the same value."""
        with put_back(self._model):
            for _ in range(calls):
                self._run(example)  # so that its caches for later calls are filled
            first = run(self._model, example)[1]
            self._rewrites |= bool(first)
            try:
                other = run(self._model, perturb(example))[1] if first else {}
            except Exception:  # noqa: BLE001 - whatever an operator raises for unsuitable numbers
                return [*first]
        return [name for name in {**first, **other} if not (first.get(name, True) and other.get(name, True))]

    def _run(self, example: Arguments) -> None:
        args, kwargs = copy_tensors(example)
        with torch.random.fork_rng(devices=[]):
            self._model(*args, **kwargs)

    def finish(self, examples: Sequence[Arguments], keep_weights: bool) -> None:
        """Let networks answer from now on, and remove their weights from the model, unless they are kept.

        Raises
        ------
        InputError
            If the model's own code reads removed weights.
        """
        for each in self.answering:
            each.module.forward = each.forward()
        if not keep_weights:
            let_go(self._model, self.answering)
        if self.answering:
            vars(self._model)[REFUSED] = self.refused
        for each in self.answering:
            each.watch()
        for example in [] if keep_weights else examples:
            try:
                run(self._model, example)
            except Exception as error:
                raise InputError(
                    f"the model itself reads weights that were moved into its networks ({type(error).__name__}: {error}); keep them"
                    " (keep_weights=True)"
                ) from error

    def _replace(self, modules: Mapping[str, nn.Module], examples: Sequence[Arguments]) -> None:
        """Compile networks for modules, or for their submodules, where these are called."""
        modules = {
            path: each for path, each in modules.items() if each not in self._seen
        }  # a module may have two names
        self._seen.update(modules.values())
        scripted = {path for path, each in modules.items() if isinstance(each, torch.jit.ScriptModule)}
        self.refused |= dict.fromkeys(sorted(scripted), "torch.jit compiled it")
        modules = {path: each for path, each in modules.items() if path not in scripted}
        calls, ways = self._calls(modules, examples)
        for path, module in modules.items():
            if path in calls:
                why = ways.get(path) or self._obstacle(path, module) or self._replaced(path, module, calls[path])
                if not why:
                    continue
                if self._how.dynamic_shapes and not path:
                    warnings.warn(
                        f"networks are only for the shapes of the example, not for dynamic_shapes: {why}",
                        TvmconvWarning,
                        stacklevel=3,
                    )
                self.refused[path] = why
                if self.elsewhere:
                    continue
            below = {f"{path}.{name}".removeprefix("."): each for name, each in module.named_children()}
            if below := {name: each for name, each in below.items() if _has_weights(each)}:
                self._replace(below, examples)

    def _calls(
        self, modules: Mapping[str, nn.Module], examples: Sequence[Arguments]
    ) -> tuple[dict[str, list[_Call]], dict[str, str]]:
        """Return how modules are called while the model runs on examples, and why some cannot be replaced."""
        calls: dict[str, list[_Call]] = {}
        ways: dict[str, str] = {}
        handles = []
        for path, module in modules.items():
            given: list[Arguments] = []

            def before(_: Any, args: Any, kwargs: Any, given: list[Arguments] = given) -> None:
                if not torch.compiler.is_compiling():  # for example a branch of torch.cond
                    given.append(copy_tensors((args, kwargs)))  # it may change them in place

            def after(_: Any, args: Any, kwargs: Any, answer: Any, path: str = path, given: Any = given) -> None:
                if torch.compiler.is_compiling():
                    return
                example = given.pop()
                known = calls.setdefault(path, [])
                if _shares(answer, (args, kwargs), modules[path], not self._how.dynamic_shapes or bool(path)):
                    ways[path] = _SHARES
                elif any(_is_like(example, each) for each, _ in known):
                    return
                elif len(known) == _MOST_WAYS:
                    ways[path] = f"it is called in more than {_MOST_WAYS} ways"
                else:
                    known.append((example, copy_answer(answer)))

            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        try:
            for example in examples:
                run(self._model, example)
        finally:
            for handle in handles:
                handle.remove()
        return calls, ways

    def _obstacle(self, path: str, module: nn.Module) -> str:
        """Return why a program would miss a part of a module's code, or nothing."""
        if isinstance(module, fx.GraphModule):
            return "it is a graph of torch.fx, whose calls are its code's"
        if written := [name for name in self._written if not path or name.startswith(f"{path}.")]:
            return f"its code writes to {', '.join(written[:3])} in each call"
        return _find_hook(path, module)

    def _replaced(self, path: str, module: nn.Module, calls: Sequence[_Call]) -> str:
        """Compile networks for the calls of a module; return why not all of these have some, or nothing."""
        try:
            source = with_fixed_weights(module)
            # Free extents of submodules' arguments are not known.
            how = self._how if not path else replace(self._how, dynamic_shapes=None)
            found = [(example, _compute(source, example, answer, self._store, how)) for example, answer in calls]
        except (SourceError, UnsupportedMachineError) as error:
            self.elsewhere |= isinstance(error, UnsupportedMachineError)
            return str(error)
        answering = Answering(module, path, self._rewrites, self._anew)
        for example, made in found:
            answering.add(*example, made, _read(module, example))
            self.networks += len(made.networks)
        self.answering.append(answering)
        return ""


class CompileAnew:
    """Compiles a module again that has changed."""

    def __init__(self, store: Store, how: How) -> None:
        self._store, self._how = store, how

    def __call__(
        self, answering: Answering, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Reads, Computed | str]:
        """Return a call's computation, or why there is none, and the reads of its code."""
        module = answering.module
        with torch.inference_mode(False), torch.no_grad():
            # Other threads call the module meanwhile, or change it.
            plain = copied_model(module)
            if (inside := answering_of(plain)) is not None:
                inside.leave()
            example = copy_tensors((args, kwargs))
            reads = _read(plain, example)
            answer, changed = run(plain, example)
            written = [name for name, is_same in changed.items() if not is_same]
            why = (
                f"its code writes to {', '.join(written[:3])} in each call"
                if written
                else _find_hook(answering.path, plain)
            )
            how = self._how if not answering.path else replace(self._how, dynamic_shapes=None)
            if not why and _shares(answer, example, plain, not how.dynamic_shapes):
                why = _SHARES
            try:
                return reads, why or _compute(with_fixed_weights(plain), example, answer, self._store, how)
            except TvmconvError as error:
                return reads, str(error)


def _find_hook(path: str, module: nn.Module) -> str:
    """Return a message on a hook that a network would not call, or nothing."""
    source = with_fixed_weights(module)
    hooks = {
        name: (*each._forward_hooks.values(), *each._forward_pre_hooks.values())
        for name, each in source.named_modules()
    }
    # For a submodule, the collecting module may be outside.
    own = _packages(source) if any(hooks.values()) and not path else set()
    for name, each in hooks.items():
        if not own.issuperset(map(_package, each)):
            return f"a hook looks at {name or 'it'}, which a network would not call"
    return ""


def _read(module: nn.Module, example: Arguments) -> Reads:
    """Return the reads of a module's code during torch.export."""
    with exporting():
        return record(lambda: run(module, example))


def _compute(module: nn.Module, example: Arguments, answer: Any, store: Store, how: How) -> Computed:
    args, kwargs = copy_tensors(example)
    made = compute_model(module, args, kwargs, store, how)
    leaves = [each for each in flatten_arguments(args, kwargs)[0] if isinstance(each, torch.Tensor)]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        found, coarse = made(leaves), is_coarse((*leaves, *module.parameters()))
        if not is_close(found, answer, coarse) and not (coarse and _is_no_worse(module, example, found, answer)):
            raise SourceError("its networks and PyTorch differ, for example because the model draws random numbers")
    if not how.dynamic_shapes and _views(found) != _views(answer):
        raise SourceError(_SHARES)
    return made


def _is_no_worse(module: nn.Module, example: Arguments, found: Any, answer: Any) -> bool:
    """Return whether networks' error against the module in f32 is about that of the module in its type of few digits."""
    try:
        exact = run_exactly(module, example)
        return is_no_worse(found, exact, chain([(answer, exact)], draw_roundings(module, example)))
    except RuntimeError:  # its code can only compute in its own type
        return False


def _packages(model: nn.Module) -> set[str]:
    """Return the installed packages of a model's modules, whose hooks count as its code: transformers collects layers' outputs by hooks.

    A program includes their effect on answers; a user's hook would expect values that a network does not show.
    """
    return ({_package(type(each)) for each in model.modules()} - {"torch"}) & packages_distributions().keys()


def _package(made: Any) -> str:
    return str(getattr(made, "__module__", "")).partition(".")[0]


def _has_weights(module: nn.Module) -> bool:
    """Return whether a module has weights of two or more axes besides embedding tables, as convolutions and Linears have."""
    tables = (nn.Embedding, nn.EmbeddingBag)
    if isinstance(module, torch.jit.ScriptModule):
        return any(each.dim() > 1 for each in module.parameters())
    own = (each for part in module.modules() if not isinstance(part, tables) for each in part.parameters(recurse=False))
    return any(each.dim() > 1 for each in own)


def _is_like(one: Arguments, other: Arguments) -> bool:
    return _kinds(one) == _kinds(other)


def _kinds(example: Arguments) -> Any:
    leaves, spec = pytree.tree_flatten(example)
    return spec, [(each.shape, each.dtype) if isinstance(each, torch.Tensor) else (type(each), repr(each)) for each in leaves]  # fmt: skip


def _shares(answer: Any, given: Any, module: nn.Module, gives_views: bool) -> bool:
    """Return whether an in-place operator on an answer would change memory that a network's answer does not share.

    That is what a module was given, its weights, or another answer; with `gives_views`, one that has not all of its memory.
    """
    others = distinct(pytree.tree_leaves(given))
    # An argument returned as it is, or twice, is returned so by networks, too.
    tensors = [each for each in distinct(pytree.tree_leaves(take_apart(answer)), others) if each.numel()]
    held = {address(each) for each in (*others, *module.parameters(), *module.buffers())}
    if any(address(each) in held for each in tensors):
        return True
    if gives_views:
        tensors = [each for each, view in zip(tensors, find_views(tensors), strict=True) if view is None]
    return any(
        address(one) == address(other) and _overlap(one, other)
        for at, one in enumerate(tensors)
        for other in tensors[:at]
    )


def _views(answer: Any) -> Any:
    return find_views(distinct(pytree.tree_leaves(take_apart(answer))))


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors of one storage have an element in common."""
    size = one.untyped_storage().nbytes()
    taken = torch.zeros(size, dtype=torch.bool)
    for each, mark in ((one, True), (other, False)):
        width = each.element_size()
        places = taken.as_strided((*each.shape, width), (*(step * width for step in each.stride()), 1), each.storage_offset() * width)  # fmt: skip
        if mark:
            places.fill_(True)
        elif bool(places.any()):
            return True
    return False
