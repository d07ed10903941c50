"""Rewrite a model so that layers compute its convolutions: in graphs where those give its answers, else one by one."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass, replace
from inspect import Parameter
from typing import Any

import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd
from torch.nn.utils import parametrize
from torch.utils import _pytree as pytree

from ..errors import InputError, TvmconvWarning
from .calls import Notice
from .fusion import describe, fuse, replace_module, swap
from .layers import FusedConvolution
from .makers import AsInt
from .sized import with_sizes
from .subclasses import with_known_classes
from .tracing import Untraced, Ways
from .unchanged import unchanged
from .weights import with_fixed_weights

# What BatchNorm folded into weights changes in f32 and f64, and in types of fewer digits.
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-3}
_COARSE = 5e-2

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Expected = tuple[Arguments, Any]  # and what `run` gives


def rewrite(model: nn.Module, examples: Sequence[Arguments], notice: Notice) -> nn.Module:
    """Return a copy of a model whose convolutions are layers, that computes the same for the examples.

    torch.fx traces one way through a module's code, so the fused graph of a module is taken if it gives the module's answers
    to what the examples call it with. Else its children are tried, down to the single convolutions.

    Raises
    ------
    InputError
        If it has no convolution that a layer could replace.
    """
    # By the model itself: the hooks and closures of a copy may belong to the model.
    expected = [(example, run(model, example)) for example in examples]
    model = with_sizes(with_known_classes(with_fixed_weights(model)))
    _check_copy(model, examples)
    if describe(model) is not None:
        return swap(copy.deepcopy(model), notice)
    notice.rehearsing = notice.unbuilt = True
    try:
        fast = _rewritten(model, expected, notice)
    finally:
        notice.rehearsing = notice.unbuilt = False
    layers = [module for module in fast.modules() if isinstance(module, FusedConvolution)]
    for layer in layers:
        layer.calls.forget()  # who computed what the rehearsal met
    if not layers:
        raise InputError(
            "the model has no convolution that kernels compute: Conv1d to Conv3d or ConvTranspose1d to ConvTranspose3d,"
            " or Linear, without hooks; or F.conv1d to F.conv_transpose3d or F.linear with weights of"
            " the model"
        )
    return fast


def _rewritten(model: nn.Module, expected: Sequence[Expected], notice: Notice) -> nn.Module:
    """Return the first copy of a model that gives its answers, of those with the most fused to those with the least."""
    examples = [example for example, _ in expected]
    fast = _fused(model, "", expected, notice)
    if fast is not None:
        return fast
    fast = copy.deepcopy(model)
    _fuse_children(model, fast, "", examples, notice)
    if _agrees(fast, expected):
        return fast
    fast = swap(copy.deepcopy(model), notice)  # it looks into its children, which were graphs
    if _agrees(fast, expected):
        return fast
    fast = swap(copy.deepcopy(model), notice)  # it looks at how tensors lie, as `view` does
    for module in fast.modules():
        if isinstance(module, FusedConvolution):
            module.lies_as_torch = True
    if not _agrees(fast, expected):
        warnings.warn(
            "the optimized copy gives another answer to the example than the model: the model gives another one each time,"
            " or has hooks or closures that belong to itself in a copy, too",
            TvmconvWarning,
            stacklevel=5,
        )
    return fast


def _check_copy(model: nn.Module, examples: Sequence[Arguments]) -> None:
    """Raise InputError if a copy of a model fails, which does not."""
    try:
        for example in examples:
            run(copy.deepcopy(model), example)
    except Exception as error:
        raise InputError(
            f"a copy of the model (copy.deepcopy) fails where the model does not, {type(error).__name__}: {error}; if it has"
            " hooks or closures that belong to the model, make them methods of its modules, or optimize it without them"
        ) from error


def run(model: nn.Module, example: Arguments) -> Any:
    """Return a model's answer to an example, and the example as its code leaves it, which may work in place.

    Both stay as they are, and random numbers are the same in each run.
    """
    args, kwargs = _copied(example)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), unchanged(model):
        torch.manual_seed(0)
        return _copied((model(*args, **kwargs), args, kwargs))


def as_examples(given: Any) -> list[Arguments]:
    """Return what a caller gave as example inputs, as positional and named arguments.

    Raises
    ------
    InputError
        If it is none of what is allowed.
    """
    if isinstance(given, list) and given:
        return [example for each in given for example in as_examples(each)]
    if isinstance(given, torch.Tensor):
        return [((given,), {})]
    if isinstance(given, tuple):
        return [(given, {})]
    if isinstance(given, Mapping):
        return [((), dict(given))]
    raise InputError(
        f"example_inputs is a {type(given).__name__}; give a tensor, a tuple of positional arguments, a dict of named ones,"
        " or a list of such for several shapes"
    )


def _fused(module: nn.Module, prefix: str, expected: Sequence[Expected], notice: Notice) -> nn.Module | None:
    """Return the fused graph of a copy of a module, None if there is none or it gives other answers."""
    if module._forward_hooks or module._forward_pre_hooks:
        notice.graphless[prefix.removesuffix(".")] = "a hook looks at it, which a graph would not call"
        return None
    ways: Ways | None = Ways(lists=bool(prefix))  # a module within a model is given lists of one length
    while ways is not None:
        used = ways
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(
                    1
                )  # as no run does: random numbers that become constants of the graph give other answers
                graph = fuse(copy.deepcopy(module), _positional(module, expected[0][0]), notice, prefix, ways)
            break
        except Exception as error:  # noqa: BLE001 - tracing runs the module's own code with stand-ins, which may raise anything
            ways = _another_way(module, ways, error, expected[0][0])
            failure = error
    else:
        notice.graphless[prefix.removesuffix(".")] = _first_line(failure)
        return None
    if _agrees(graph, expected):
        called = dict.fromkeys(node.target for node in graph.graph.nodes if node.op == "call_module")
        paths = {path: module.get_submodule(path) for path in called if path in _paths(module)}
        inner = [path for path, each in paths.items() if type(each) in used.opaque and _is_around_convolutions(each)]
        examples = [example for example, _ in expected]
        made = _fused_below(module, inner, examples, notice, prefix)
        for path in inner:
            if (below := made.get(path)) is not None:
                replace_module(graph, path, below)
            else:
                _fuse_children(module, graph, path, examples, notice, prefix)
        if not inner or _agrees(graph, expected):
            return graph
    notice.graphless[prefix.removesuffix(".")] = "its graph gives another answer, or leaves what it is given otherwise"
    return None


def _another_way(module: nn.Module, ways: Ways, error: Exception, example: Arguments) -> Ways | None:
    """Return how a module may be traced after it failed, None if there is no other way; `example` are its arguments."""
    kinds = {parameter.kind for parameter in inspect.signature(module.forward).parameters.values()}
    if (
        ways.named is None
        and not getattr(error, "within", "")
        and kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    ):
        names, keywords = _names(module, example)
        return replace(ways, named=names, keywords=keywords)
    if not isinstance(error, Untraced):
        return None
    if isinstance(error.error, AsInt):
        namespace = error.error.namespace
        known = namespace.get("__name__", "").partition(".")[0] == "torch" or "int" in namespace
        if not known and not any(each is namespace for each in ways.counting):
            return replace(ways, counting=(*ways.counting, namespace))
    kind = type(module.get_submodule(error.within)) if error.within else None
    if kind is None or kind in ways.opaque or kind.__module__.startswith("torch."):
        return None
    return replace(ways, opaque=(*ways.opaque, kind))  # it may have a graph of its own, or its children


def _paths(module: nn.Module) -> set[str]:
    return {path for path, _ in module.named_modules(remove_duplicate=False)}


def _first_line(error: Exception) -> str:
    """Return an error as one line."""
    text = str(error) if isinstance(error, Untraced) else f"{type(error).__name__}: {error}"
    return text.partition("\n")[0]


def _positional(module: nn.Module, example: Arguments) -> list[Any]:
    """Return a module's arguments in the order of its parameters, copied."""
    args, kwargs = _copied(example)
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return list(bound.args) + list(bound.kwargs.values())


def _names(module: nn.Module, example: Arguments) -> tuple[tuple[str, ...], int]:
    """Return a name for each of a module's arguments in the order of :func:`_positional`, and how many are given by name."""
    args, kwargs = example
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    by_place: list[str] = []
    for name, parameter in bound.signature.parameters.items():
        if parameter.kind is Parameter.VAR_POSITIONAL:
            by_place += [f"_{name}_{number}" for number in range(len(bound.arguments[name]))]
        elif parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD):
            by_place.append(name)
    return (*by_place, *bound.kwargs), len(bound.kwargs)


def _fuse_children(
    model: nn.Module, fast: nn.Module, path: str, examples: Sequence[Arguments], notice: Notice, prefix: str = ""
) -> None:
    """Replace, in the copy `fast` of a model, what is below the module at `path`; `prefix` is the model's own path."""
    parent = fast.get_submodule(path)
    # Not named_children, which tells but one name of a module that has several.
    paths = {name: f"{path}.{name}" if path else name for name, child in parent._modules.items() if child is not None}
    originals = {name: model.get_submodule(below) for name, below in paths.items()}
    inner = {id(each): paths[name] for name, each in originals.items() if _is_around_convolutions(each)}
    made = _fused_below(model, list(inner.values()), examples, notice, prefix)
    replaced: dict[int, nn.Module] = {}
    for name, original in originals.items():
        known = id(original)
        if known in replaced:
            setattr(parent, name, replaced[known])
            continue
        if describe(original) is not None:
            setattr(parent, name, swap(getattr(parent, name), notice, prefix + paths[name]))
        elif (graph := made.get(inner.get(known, ""))) is not None:
            setattr(parent, name, graph)
        elif known in inner:
            _fuse_children(model, fast, paths[name], examples, notice, prefix)
        replaced[known] = getattr(parent, name)


def _fused_below(
    model: nn.Module, paths: Sequence[str], examples: Sequence[Arguments], notice: Notice, prefix: str
) -> dict[str, nn.Module | None]:
    """Return the fused graphs of modules by their paths, compared with each call while their model runs on the examples."""
    watched = copy.deepcopy(model)
    made: dict[str, nn.Module | None] = {}

    def watch(path: str) -> None:
        module = watched.get_submodule(path)
        given: list[Arguments] = []

        def after(_module: Any, args: Any, kwargs: Any, answer: Any) -> None:
            expected = [(given.pop(), (answer, args, kwargs))]
            if path not in made:
                made[path] = _fused(model.get_submodule(path), f"{prefix}{path}.", expected, notice)
            elif (graph := made[path]) is not None and not _agrees(graph, expected):
                made[path] = None

        # Copies, since it may work in place.
        module.register_forward_pre_hook(
            lambda _, args, kwargs: given.append(_copied((args, kwargs))), with_kwargs=True
        )
        module.register_forward_hook(after, with_kwargs=True)

    for path in paths:
        watch(path)
    if paths:
        for example in examples:
            run(watched, example)
    return made


def _is_around_convolutions(module: nn.Module) -> bool:
    """Whether a module has convolutions in it, or is a subclass of one, whose graph may have one."""
    if isinstance(module, (_ConvNd, nn.Linear)) and not type(module).__module__.startswith("torch."):
        return not parametrize.is_parametrized(module) and describe(module) is None
    return describe(module) is None and any(
        describe(each) is not None or _is_around_convolutions(each) for each in module.children()
    )


def _copied(values: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, torch.clone, values)


def _agrees(model: nn.Module, expected: Sequence[Expected]) -> bool:
    """Whether a model gives these answers, within what folding changes."""
    try:
        return all(_is_close(run(model, example), answer) for example, answer in expected)
    except Exception:  # noqa: BLE001 - a graph of another way through the model's code may raise anything
        return False


def _is_close(given: Any, expected: Any) -> bool:
    given, form = pytree.tree_flatten(given)
    expected, expected_form = pytree.tree_flatten(expected)
    return form == expected_form and all(map(_is_close_leaf, given, expected))


def is_alike(given: Any, expected: Any) -> bool:
    """Whether an answer has tensors of another's shapes and types."""
    return [_kind(each) for each in pytree.tree_leaves(given)] == [_kind(each) for each in pytree.tree_leaves(expected)]


def _kind(value: Any) -> Any:
    return (value.shape, value.dtype) if isinstance(value, torch.Tensor) else type(value)


def _is_close_leaf(given: Any, expected: Any) -> bool:
    if isinstance(expected, Mapping) or (is_dataclass(expected) and not isinstance(expected, type)):
        within = (dict(each if isinstance(each, Mapping) else vars(each)) for each in (given, expected))
        return type(given) is type(expected) and _is_close(*within)
    if not isinstance(expected, torch.Tensor):
        return given is expected or bool(given == expected)
    if given.shape != expected.shape or given.dtype != expected.dtype:
        return False
    if expected.is_complex():
        given, expected = torch.view_as_real(given), torch.view_as_real(expected)
    if not expected.is_floating_point():
        return True  # of a class or an index, a bit of rounding may make another
    finite = expected.isfinite()
    if not finite.all():  # as where a mask puts an infinity
        if not torch.allclose(given[~finite], expected[~finite], equal_nan=True):
            return False
        given, expected = given[finite], expected[finite]
    error = (given.double() - expected.double()).norm()
    return bool(error <= _TOLERANCE.get(expected.dtype, _COARSE) * expected.double().norm())
