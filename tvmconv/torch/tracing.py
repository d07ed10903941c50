"""`trace`: a model's graph by torch.fx, also if its code branches on the shapes of tensors.

The branches taken for the example are taken for all inputs. So the graph checks each of them, and refuses inputs that would have
taken another path through the code.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import fx, nn
from torch.fx.proxy import TraceError
from torch.utils import _pytree as pytree

from .arguments import Given
from .convolution import CONVOLUTIONS
from .decisions import Decision
from .folding import attribute
from .makers import recorded
from .plan import computing
from .proxies import Proxy
from .questions import by_axes, is_number_of_channels, is_split, shape_and_part, text_of
from .same import SameConvolution
from .sized import CUT_BY_SIZE, PAD_BY_SIZE


class Untraced(TraceError):  # type: ignore[misc]
    """There is no graph of what the module at the path `within` computes; of the model itself, if that is empty."""

    def __init__(self, error: Exception, within: str) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error, self.within = error, within


@dataclass(frozen=True)
class Ways:
    """How a model is traced.

    Parameters
    ----------
    lists
        Whether lists that it is given are taken apart.
    opaque
        Types of modules that are called by the graph as they are.
    counting
        The globals of code that calls `int` of what stands for a number.
    named
        The names of the arguments, if ``*args`` and ``**kwargs`` are taken apart, else None.
    keywords
        How many of the last of them are given by name.
    """

    lists: bool = True
    opaque: tuple[type, ...] = ()
    counting: tuple[dict[str, Any], ...] = ()
    named: tuple[str, ...] | None = None
    keywords: int = 0


BY_ITSELF = Ways()


class _Decided(NamedTuple):
    """What was decided by, how, whether the number of axes alone decides, and the path of the module whose code decides."""

    node: Any
    expected: int
    of_axes: bool
    within: str


def trace(model: nn.Module, example: Sequence[Any], ways: Ways) -> fx.GraphModule:
    """Return a model's graph; `example` are its arguments.

    A condition on sizes is decided as for the example where the other decision is an error of the model's own, such as an
    assertion; one on the number of axes, or of parts along the second axis, always.

    Raises
    ------
    Untraced
        If the model's code decides by other things, or does what torch.fx does not know.
    """
    tracer = _Tracer(example, ways)
    try:
        graph = tracer.trace(model)
    except Exception as error:
        raise Untraced(error, tracer.within) from error
    for node in list(graph.nodes):
        if node.target in CONVOLUTIONS:
            tracer.fix_channels(node)
    traced = fx.GraphModule(model, graph)
    for number, (node, expected, of_axes, within) in enumerate(tracer.decisions):
        other = _error_else(model, _Tracer(example, ways, tracer.decisions[: number + 1]), number + 1)
        if other is None and not of_axes:
            refused = TraceError(f"other sizes take another way through the code: {node.format_node()}")
            raise Untraced(refused, within)
        path = f"_decision_{number}"
        traced.add_submodule(path, Decision(text_of(node), expected, other).eval())
        with traced.graph.inserting_after(node):
            traced.graph.call_module(path, (node,))
    return traced


def _error_else(model: nn.Module, tracer: _Tracer, decisions: int) -> str | None:
    """Return the error that a model's code raises if the last of so many decisions is the other, None if it may raise none."""
    try:
        tracer.trace(copy.deepcopy(model))
    except TraceError:
        return None
    except (AssertionError, ValueError, RuntimeError) as error:
        # What is decided after it, is by the example's sizes, which do not go this way: `assert h == 8 or h == 16`.
        by_sizes = any(not decided.of_axes for decided in tracer.decisions[decisions:])
        return None if by_sizes else f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - code that torch.fx cannot trace may raise anything
        return None
    return None


def _taking(forward: Any, names: Sequence[str], keywords: int) -> Any:
    """Return a module's `forward` as a function of arguments of these names, of which the last are given by name."""
    places = len(names) - keywords
    given = [*names[:places], *(f"{name}={name}" for name in names[places:])]
    known = {"forward": forward}
    exec(f"def taking({', '.join(['self', *names])}): return forward({', '.join(['self', *given])})", known)
    return known["taking"]


class _Tracer(fx.Tracer):  # type: ignore[misc]
    """Knows the values of what it traces. Keeps whole what computes its weights when it is called."""

    proxy_buffer_attributes = True  # what is computed of buffers is computed in each call, as of parameters

    def __init__(self, example: Sequence[Any] = (), ways: Ways = BY_ITSELF, before: Sequence[_Decided] = ()) -> None:
        # No example: PyTorch traces the code of what was pickled, which decides nothing, and imports these from Python.
        super().__init__(autowrap_functions=(max, min, int))
        self.within = ""  # the path of the module whose code is traced
        self._ways = ways
        self.decisions: list[_Decided] = []
        # Decisions of an earlier trace, which are taken again, but for the last, which is the other one.
        self._before = before
        self._decided: dict[Any, int] = {}
        self._values: dict[Any, Any] = {}
        self._example, self._arguments = example, iter(example)
        self._computing = False  # then modules are called, not traced

    def trace(self, root: Any, concrete_args: Any = None) -> fx.Graph:
        """Return the graph of a model's code."""
        with recorded(self._ways.counting):
            return super().trace(root, concrete_args)

    def create_args_for_root(self, root_fn: Any, is_module: bool, concrete_args: Any = None) -> Any:
        """Return the function that is traced, and what it is given: what stands for tensors and numbers, all else itself."""
        if is_module and self._ways.named is not None:
            root_fn = _taking(root_fn, self._ways.named, self._ways.keywords)
        function, args = super().create_args_for_root(root_fn, is_module, concrete_args)
        given = Given(self._ways.lists)
        for place, value in enumerate(self._example, start=int(is_module)):
            if place < len(args) and not args[place].node.target.startswith("*"):
                args[place] = given(args[place], value)

        def traced(*args: Any) -> Any:
            by_size = is_module and PAD_BY_SIZE in self.root._modules
            answer = self._by_size(self.root, *args[1:]) if by_size else function(*args)
            given.check()
            return answer

        return traced, args

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        """Whether a module is one node of the graph."""
        if module._forward_hooks or module._forward_pre_hooks or isinstance(module, SameConvolution):
            return True
        if type(module) in self._ways.opaque:
            return True
        return hasattr(module, "parametrizations") or super().is_leaf_module(module, name)

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        """Trace a module's call; of one that the code makes, as of parts of a Sequential, what it does."""
        if self._computing or not self._has(m):
            return forward(*args, **kwargs)
        if PAD_BY_SIZE in m._modules and len(args) == 1 and not kwargs:
            return self._by_size(m, *args)
        if type(m) in self._ways.opaque:
            args, kwargs = self._fresh(tuple(args)), {name: self._fresh(each) for name, each in kwargs.items()}
        before, self.within = self.within, self.path_of_module(m)
        answer = super().call_module(m, forward, args, kwargs)
        self.within = before  # whoever fails within stays there
        return answer

    def _by_size(self, module: Any, data: Any) -> Any:
        """Trace what a module does by size, around its convolution."""
        pad, cut = module._modules[PAD_BY_SIZE], module._modules[CUT_BY_SIZE]
        inner = module.get_submodule(pad.inner)
        output = data
        for each in (pad, inner):
            output = self.create_proxy("call_module", self.path_of_module(each), (output,), {})
        if not pad.sizes.cuts:
            return output
        return self.create_proxy("call_module", self.path_of_module(cut), (output, data), {})

    def _fresh(self, value: Any) -> Any:
        """Return an argument whose lists and dicts are made in each call: the code of who gets them may write to them."""
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(map(self._fresh, value))
        if type(value) is list:
            return self.create_proxy("call_function", list, ([*map(self._fresh, value)],), {})
        if type(value) is dict:
            parts = {name: self._fresh(each) for name, each in value.items()}
            return self.create_proxy("call_function", dict, (parts,), {})
        return value

    def _has(self, module: nn.Module) -> bool:
        try:
            self.path_of_module(module)
        except NameError:
            return False
        return True

    def create_arg(self, a: Any) -> Any:
        """Return a value as nodes have it, of an OrderedDict a node that makes it: torch.fx makes a dict of it."""
        if type(a) is OrderedDict:
            return self.create_node("call_function", OrderedDict, (self.create_arg(list(a.items())),), {})
        return super().create_arg(a)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        """Trace what the code asks a module for."""
        return attr_val if self._computing else super().getattr(attr, attr_val, parameter_proxy_cache)

    def proxy(self, node: Any) -> Any:
        """Return what stands for a node's value."""
        return Proxy(node, self)

    def to_bool(self, obj: Any) -> bool:
        """Decide as for the example, if shapes alone decide."""
        return bool(self.decided(obj.node, bool))

    def iter(self, obj: Any) -> Any:
        """Iterate over the parts of a tensor, or over its shape, as many as there are in the example."""
        if not is_split(obj.node) and shape_and_part(obj.node) is None:
            return super().iter(obj)
        return iter([obj[number] for number in range(len(obj))])

    def decided(self, node: Any, kind: Callable[[Any], int]) -> int:
        """Return what `kind` makes of a node's value for the example."""
        if node in self._decided:
            return self._decided[node]
        of_axes, number = by_axes(node, self._value), len(self.decisions)
        known = number < len(self._before)
        expected = self._before[number].expected if known else kind(self._value(node))
        self.decisions.append(_Decided(node, expected, of_axes, self.within))
        self._decided[node] = not expected if number == len(self._before) - 1 else expected
        return self._decided[node]

    def fix_channels(self, convolution: Any) -> None:
        """Take a number of channels for the example's where the groups or the filter of a convolution are made by it.

        As in ``conv2d(x, filter.repeat(x.shape[1], 1, 1, 1), groups=x.shape[1])``. What else the filter is made of must be the
        model's.
        """
        found: list[tuple[Any, Any]] = []
        waiting = [(convolution, each) for each in convolution.all_input_nodes[1:]]
        while waiting:
            user, read = waiting.pop()
            if is_number_of_channels(read):
                found.append((user, read))
            elif read.op in ("call_function", "call_method"):
                waiting += [(read, each) for each in read.all_input_nodes]
            elif read.op != "get_attr":
                return
        for user, size in found:
            channels = int(self._value(size))
            if size not in self._decided:
                self._decided[size] = channels
                self.decisions.append(_Decided(size, channels, True, ""))
            user.args, user.kwargs = fx.node.map_arg(
                (user.args, user.kwargs), lambda each, size=size, channels=channels: channels if each is size else each
            )

    def _value(self, wanted: Any) -> Any:
        """Compute a node's value, and those of all before it."""
        self._computing = True
        try:
            with torch.no_grad():
                for node in self.graph.nodes:
                    if node not in self._values and node.op != "output":
                        self._values[node] = self._computed(node)
        except Exception as error:
            raise TraceError(f"{type(error).__name__}: {error}") from error
        finally:
            self._computing = False
        return self._values[wanted]

    def _computed(self, node: Any) -> Any:
        if node.op == "placeholder":
            return pytree.tree_map_only(torch.Tensor, torch.clone, next(self._arguments))
        if node.op == "get_attr":
            return copy.deepcopy(attribute(self.root, node.target))
        return computing(self.root, node)(self._values)
