"""`read_facts`: all that code may read of a model and its objects, by path, and a `Snapshot` of it for comparison in C.

Facts are numbers, texts, code and classes, so a copy of a model has equal facts, and so has a model that was changed and changed back.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import gc
import io
import logging
import os
import sys
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from ...frontends.torch.memory import digest
from .reads import Reads, is_library, name_of
from .snapshot import Snapshot

_PLAIN = (
    int, float, complex, str, bytes, type(None), type(...), type(NotImplemented), range, slice, Enum, PurePath, np.generic, np.dtype,
    torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
_DICTS = (dict, OrderedDict, defaultdict)
_SEQUENCES = (list, tuple, set, frozenset, deque, bytearray)
# Objects compared by identity alone: functions of C, loggers, random generators, streams.
_OPAQUE = (types.BuiltinFunctionType, logging.Logger, torch.Generator, torch.Stream)
_VIEWS: tuple[type, ...] = (types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()))
# Objects that consist of the named attributes.
_REFERRING: tuple[tuple[type | tuple[type, ...], tuple[str, ...]], ...] = (
    (types.MethodType, ("__func__", "__self__")),
    (functools.partial, ("func", "args", "keywords")),
    (property, ("fget",)),
    ((staticmethod, classmethod), ("__func__",)),
)
_PROXIES = (weakref.ProxyType, weakref.CallableProxyType)
_ASKING = ("is_grad_enabled", "is_inference_mode_enabled", "get_num_threads", "are_deterministic_algorithms_enabled")
_ASKED = {id(getattr(torch, name)): getattr(torch, name) for name in _ASKING}
_INSIDE = ("_modules", "_parameters", "_buffers")


class Identity:
    """Wrapper of an object that is equal to itself alone; after unpickling, to any object with its name."""

    def __init__(self, of: Any) -> None:
        self.of: Any = of
        names = (getattr(of, each, None) for each in ("__name__", "__qualname__"))
        name = next((each for each in names if isinstance(each, str)), type(of).__qualname__)
        self.text = name_of(of) if isinstance(of, types.CodeType) else f"{getattr(of, '__module__', '')}.{name}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Identity):
            return False
        if self.of is None or other.of is None:
            return self.text == other.text
        return self.of is other.of or (type(self.of) is type(other.of) and bool(self.of == other.of))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return self.text.removeprefix("builtins.").removeprefix(".")

    def __getstate__(self) -> dict[str, Any]:
        return {"of": None, "text": self.text}


class Moving:
    """Iterator at an unknown position, never equal to another one."""


class Facts(dict[str, Any]):
    """Facts by path; immutable, so copies of a model share them."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Facts:
        return self


def read_facts(module: nn.Module, reads: Reads, own: Callable[[Any], Any]) -> tuple[Facts, Snapshot]:
    """Return the facts of a module that code may read.

    Parameters
    ----------
    own
        Returns a module's own ``forward`` attribute for the one that it has now, or None.
    """
    walk = _Walk(reads, own)
    walk.held.asked = [torch.get_default_dtype]
    device = getattr(torch.utils._device, "CURRENT_DEVICE", None)
    walk.mapping("", vars(torch.utils._device), {"CURRENT_DEVICE"}, lambda *_: None)
    walk.found["the default device"] = str(device or "cpu")
    walk.see("", module)
    for name, chain in sorted(reads.variables):
        walk.variable(name, chain)
    walk.found["the default type, and what else PyTorch is asked for"] = [each() for each in walk.held.asked]
    walk.held.seal()
    return walk.found, walk.held


class _Walk:
    """Traversal of objects, and of the objects they refer to."""

    def __init__(self, reads: Reads, own: Callable[[Any], Any]) -> None:
        self.found, self.held = Facts(), Snapshot()
        self._reads, self._own = reads, own
        self._names = None if reads.is_any else reads.names
        self._seen: dict[int, tuple[str, Any]] = {}
        self._todo: deque[tuple[str, Any]] = deque()

    def see(self, path: str, value: Any) -> None:
        """Record an object, and all that it refers to."""
        self._todo.append((path, value))
        while self._todo:
            self._see(*self._todo.popleft())

    def variable(self, name: str, chain: tuple[str, ...]) -> None:
        """Record a variable of a Python module, or an attribute of a module that is a variable of another."""
        if chain[0] == "":
            module, chain = sys.modules.get(chain[1]), chain[2:]
        else:
            module = sys.modules.get(name)
        for at, each in enumerate(chain):
            if not isinstance(module, types.ModuleType):
                break
            variables = vars(module)
            self.held.mapping(variables, {each})
            path, value = f"{each} of module {module.__name__}", variables.get(each)
            if value is None and each not in variables:
                if at:  # as __dict__
                    self.see(path, module)
                return  # a builtin, or created on access
            if id(value) in _ASKED and not name.startswith("torch.") and _ASKED[id(value)] not in self.held.asked:
                self.held.asked.append(_ASKED[id(value)])
            if value is os.getenv:
                value = os.environ
            if isinstance(value, types.ModuleType) and at + 1 < len(chain):
                self.found[path] = Identity(value)
                module = value
                continue
            if path not in self.found:
                self.see(path, value)
            return

    def mapping(
        self, path: str, mapping: dict[Any, Any], names: Any, see: Callable[[str, Any], None], told: str = "{}.{}"
    ) -> None:
        """Record a dict's entries of `names`, or all."""
        self.held.mapping(mapping, names)
        for name, value in [*mapping.items()]:
            if names is None or name in names:
                see(told.format(path, name).removeprefix("."), value)

    def _see(self, path: str, value: Any) -> None:
        kind = type(value)
        if kind in _PROXIES:
            self.found[path] = Identity(kind)
            with contextlib.suppress(ReferenceError):
                self._todo.append((path, value.__init__.__self__))  # the object that it stands for
        elif isinstance(value, _PLAIN):
            self.found[path] = (kind.__qualname__, repr(value))
            if not _is_plain(value) and id(value) not in self._seen:
                self._seen[id(value)] = (path, value)
                self._attributes(path, value)
        elif kind in (tuple, list, torch.Size, set, frozenset) and all(map(_is_plain, value)):
            self._plain_parts(path, value)
        elif isinstance(value, type):
            self._class(path, value)
        elif id(value) in self._seen:
            self.found[path] = f"the same as {self._seen[id(value)][0] or 'the model'}"
        else:
            self._seen[id(value)] = (path, value)
            self._see_object(path, value)

    def _see_object(self, path: str, value: Any) -> None:
        """Record a new object by its kind."""
        parts = next((names for kinds, names in _REFERRING if isinstance(value, kinds)), None)
        if value is sys.modules:  # imports add to it, for example Dynamo's for torch.cond
            self.found[path] = Identity(value)
        elif isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif isinstance(value, np.ndarray):
            self._array(path, value)
        elif isinstance(value, types.FunctionType):
            self._function(path, value)
        elif parts is not None:
            self._parts(path, value, *parts)
        elif isinstance(value, contextvars.ContextVar):
            self.held.asked.append(functools.partial(value.get, None))
            self._todo.append((path, value.get(None)))
        elif isinstance(value, weakref.ref):
            self._todo.append((path, value()))
        elif isinstance(value, _VIEWS):
            self._todo.extend((path, each) for each in gc.get_referents(value))
        elif isinstance(value, types.ModuleType):
            self.found[path] = Identity(value)
            self.mapping(f"module {value.__name__}", vars(value), self._reads.names, self._later)
        elif isinstance(value, _OPAQUE) or type(value).__module__.startswith("torch._"):
            self.found[path] = Identity(value)
        else:
            self._object(path, value)

    def _plain_parts(self, path: str, value: Any) -> None:
        if isinstance(value, (list, set)):
            self.held.sequences.append(value)
        parts = ", ".join(sorted(map(repr, value)) if isinstance(value, (set, frozenset)) else map(repr, value))
        kind = type(value)
        self.found[path] = (kind.__qualname__, f"({parts})" if kind is tuple else f"[{parts}]")

    def _tensor(self, path: str, value: torch.Tensor) -> None:
        self.held.tensors.append(value)
        layout = value.shape, value.stride() if value.layout == torch.strided else (), value.dtype, value.device
        self.found[path] = (type(value).__qualname__, *map(str, layout), digest(value, is_known=True))
        self.mapping(path, vars(value), self._reads.names, self._later)

    def _array(self, path: str, value: np.ndarray) -> None:
        self.held.arrays.append(value.view(np.ndarray))
        is_of_objects = value.dtype.hasobject
        self.found[path] = value.dtype.str, value.shape, b"" if is_of_objects else np.ndarray.tobytes(value)
        if is_of_objects:
            self._parts_of(path, value.tolist())
        if attributes := getattr(value, "__dict__", None):  # of masked arrays, and other subclasses
            self.mapping(path, attributes, None, self._later)

    def _parts_of(self, path: str, values: Iterable[Any]) -> None:
        for at, each in enumerate(values):
            self._todo.append((f"{path}[{at}]", each))

    def _later(self, path: str, value: Any) -> None:
        self._todo.append((path, value))

    def _parts(self, path: str, value: Any, *names: str) -> None:
        self.found[path] = type(value).__qualname__
        for name in names:
            self._todo.append(
                (path if name in ("__func__", "func", "fget") else f"{path}.{name}", getattr(value, name))
            )

    def _function(self, path: str, value: types.FunctionType) -> None:
        is_own = not str(value.__module__).startswith("torch.")
        if is_own:
            self.held.functions.append(value)
        # Wrappers of Python's or PyTorch's own have code whose calls are not recorded.
        if name_of(value.__code__) not in self._reads.ran and not (
            is_own
            and value.__closure__
            and is_library(str(value.__globals__.get("__name__")), value.__code__.co_filename)
        ):
            self.found[path] = Identity(value)
            return
        self.found[path] = Identity(value.__code__)
        self._todo.append((f"the defaults of {path}", value.__defaults__))
        self._todo.append((f"the named defaults of {path}", value.__kwdefaults__))
        if is_own:
            self.mapping(path, vars(value), self._names, self._later)
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            self.held.cells.append(cell)
            try:
                self._todo.append((f"{name} in {path}", cell.cell_contents))
            except ValueError:
                self.found[f"{name} in {path}"] = "empty"

    def _attributes(self, path: str, value: Any) -> None:
        self._todo.append((f"the class of {path}", type(value)))
        self.held.objects.append(value)
        self.mapping(path, vars(value), self._names, self._later)

    def _class(self, path: str, value: type) -> None:
        self.found[path] = Identity(value)
        for each in value.__mro__:
            if id(each) in self._seen or _is_standard(each):
                continue
            if type(each) is not type:
                self._todo.append((f"the class of {path}", type(each)))
            self._seen[id(each)] = (path, each)
            name = f"{each.__module__}.{each.__qualname__}"
            self.found[f"the bases of {name}"] = [*map(Identity, each.__bases__)]
            for attributes in gc.get_referents(vars(each)):  # the dict itself: vars() returns a proxy
                if isinstance(attributes, dict):
                    self.mapping(name, attributes, self._reads.names, self._of_class)

    def _of_class(self, path: str, value: Any) -> None:
        if not path.endswith(("__doc__", "__annotations__", "__dict__", "__weakref__", "__module__")):
            self._todo.append((path, value))

    def _object(self, path: str, value: Any) -> None:
        kind: Any = type(value)
        self.found[path] = f"a {kind.__qualname__}"
        is_graph = isinstance(value, fx.GraphModule)  # its class has code generated from the graph
        if kind not in _DICTS and kind.__module__ != "builtins":
            self._todo.append((f"the class of {path or 'the model'}", value.code if is_graph else kind))
        names: Any = {"training", *_INSIDE} if is_graph else None if _is_standard(kind) else self._names
        if value is os.environ:
            value = vars(value)["_data"]
            self.mapping("os.environ", value, {each.encode() for each in self._reads.names}, self._later)
            return
        attributes = None if kind in _DICTS else getattr(value, "__dict__", None)
        if isinstance(attributes, dict):
            self.held.objects.append(value)
            self.mapping(path, attributes, names, self._of_module if isinstance(value, nn.Module) else self._later)
        for name in (name for each in kind.__mro__ for name in _slots(each) if names is None or name in names):
            self.held.slots.append((value, name))
            self._todo.append((f"{path}.{name}", getattr(value, name, None)))
        if isinstance(value, dict):
            self.found[f"the keys of {path}"] = [*map(repr, value)]
            self.mapping(path, value, None, self._later, "{}[{!r}]")
            if isinstance(value, OrderedDict):  # its `move_to_end` does not change the dict's version
                self.held.sequences.append(value)
        elif isinstance(value, _SEQUENCES):
            self.held.sequences.append(value)
            self.found[f"the length of {path}"] = len(value)
            parts: Iterable[Any] = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
            self._parts_of(path, parts)
        elif not isinstance(attributes, dict) and not any(map(_slots, kind.__mro__)):
            if isinstance(value, Iterator) and not isinstance(value, io.IOBase):
                self.held.asked.append(object)  # a new object each time
                self.found[path] = Moving()
                return
            try:
                self.found[path] = (kind.__qualname__, memoryview(value).tobytes())
                self.held.buffers.append(value)
            except TypeError:
                self.found[path] = Identity(value)

    def _of_module(self, path: str, value: Any) -> None:
        """Record an attribute of a module; parts have the names of the model's code."""
        above, _, name = path.rpartition(".")
        if name in _INSIDE:
            self.mapping(above, value, None, self._later)
            self.found[f"the parts of {above or 'the model'} ({name})"] = (
                [*value] if name == "_modules" else sorted(value)  # removing a parametrization changes the order
            )
        elif name == "forward":
            if (value := self._own(value)) is not None:
                self._todo.append((path, value))
        elif name.endswith("_hooks") and isinstance(value, dict):  # their keys are never the same
            self.held.mapping(value, None)
            for at, each in enumerate(value.values()):
                self._todo.append((f"{path}[{at}]", each))
        else:
            self._todo.append((path, value))


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number or text without attributes, unlike members of enumerations."""
    return isinstance(value, _PLAIN) and not hasattr(value, "__dict__")


def _slots(kind: type) -> list[str]:
    slots = vars(kind).get("__slots__", ())
    return [each for each in ((slots,) if isinstance(slots, str) else slots) if each not in ("__dict__", "__weakref__")]


@functools.cache
def _is_standard(kind: Any) -> bool:
    """Return whether a class is Python's own, so that its code's reads do not matter."""
    module = sys.modules.get(kind.__module__)
    return (
        module is not None
        and kind.__module__ != "__main__"
        and is_library("", str(getattr(module, "__file__", None) or "<frozen"))
    )
