"""Changes of each kind of what a model reads, to be undone."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
import torch.nn.functional as F  # noqa: E402
import torch_surroundings  # noqa: E402
from near import assert_near  # noqa: E402
from torch import nn  # noqa: E402
from torch_surroundings import (  # noqa: E402
    DISPATCH,
    MASKED,
    OTHERS,
    PARTIAL,
    PROXIED,
    REFERRED,
    SETTINGS,
    STEPS,
    TABLE,
    VIEWED,
    Base,
    Kinds,
    Mode,
    Model,
    Options,
    attributed,
    doubled,
    multiply,
    shifted,
)

import tvmconv.torch  # noqa: E402

__all__ = ["Model"]
alike = functools.partial(assert_near, summed=27, layers=8)
assert_equal = functools.partial(torch.testing.assert_close, rtol=0, atol=0)

Case = Callable[[Any, pytest.MonkeyPatch], Any]


def put(path: str, value: Any) -> Case:
    """Return what sets an attribute of a model's part."""

    def change(model: Any, _: Any) -> Any:
        *parts, name = path.split(".")
        part = functools.reduce(getattr, parts, model)
        then, now = getattr(part, name), value() if isinstance(value, (types.LambdaType, type)) else value
        return called(lambda: setattr(part, name, now), lambda: setattr(part, name, then))

    return change


def put_new(part: str, name: str, value: Any) -> Case:
    """Return a function that sets an attribute which a model or a part of it lacks."""

    def change(model: Any, _: Any) -> Any:
        of = getattr(model, part) if part else model
        return called(lambda: setattr(of, name, value), lambda: delattr(of, name))

    return change


def item(get: Callable[[Any], Any], key: Any, value: Any) -> Case:
    """Return what sets an item of something that a model refers to."""

    def change(model: Any, _: Any) -> Any:
        of, then = get(model), get(model)[key]
        return called(lambda: of.__setitem__(key, value), lambda: of.__setitem__(key, then))

    return change


def outside(of: Any, name: str, value: Any) -> Case:
    """Return what sets an attribute that is no model's."""
    return once(lambda model, patch: patch.setattr(of, name, value, raising=False))


@contextlib.contextmanager
def hooked(model: Any, register: str, hook: Any, part: str = "conv") -> Iterator[None]:
    handle = getattr(getattr(model, part), register)(hook)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def on_instance(model: Any, part: str, name: str, function: Any) -> Iterator[None]:
    target = getattr(model, part) if part else model
    setattr(target, name, types.MethodType(function, target))
    try:
        yield
    finally:
        delattr(target, name)


@contextlib.contextmanager
def called(do: Callable[[], Any], undo: Callable[[], Any]) -> Iterator[None]:
    do()
    try:
        yield
    finally:
        undo()


def appended(get: Callable[[Any], Any], value: Callable[[], Any]) -> Any:
    @contextlib.contextmanager
    def change(model: Any, _: Any) -> Iterator[None]:
        get(model).append(value())
        try:
            yield
        finally:
            del get(model)[-1]

    return change


def added(tensor: Callable[[Any], Any]) -> Any:
    @contextlib.contextmanager
    def change(model: Any, _: Any) -> Iterator[None]:
        each = tensor(model)
        kept = each.detach().clone()
        each.add_(1)
        try:
            yield
        finally:
            each.copy_(kept)

    return change


def turned(model: Any, _: Any) -> Any:
    """Let a weight have the same memory with two axes exchanged."""
    weight = model.conv.weight
    data = weight.data
    return called(lambda: setattr(weight, "data", data.mT), lambda: setattr(weight, "data", data))


def moved(model: Any, _: Any) -> Any:
    weight = model.conv.weight
    data = weight.data
    return called(lambda: setattr(weight, "data", data + 1), lambda: setattr(weight, "data", data))


def once(case: Case) -> Case:
    """Return a change of what all models have."""
    case.is_global = True  # type: ignore[attr-defined]
    return case


def layer() -> nn.Module:
    torch.manual_seed(1)
    return nn.Conv2d(4, 4, 1).eval()


def renamed(model: Any, _: Any) -> Any:
    kind = type("Other", (type(model.act),), {"forward": lambda self, x: x * 2})
    return called(lambda: setattr(model.act, "__class__", kind), lambda: setattr(model.act, "__class__", nn.LeakyReLU))


def deleted(model: Any, _: Any) -> Any:
    heads = {"a": model.heads["a"]}, {"b": nn.ReLU6()}
    return called(*(lambda now=now: (model.heads.clear(), model.heads.update(now)) for now in heads[::-1]))


CASES: dict[str, Any] = {
    "bool": put("flag", True),
    "int": put("count", 3),
    "float": put("alpha", 2.0),
    "enum": put("mode", Mode.TWICE),
    "text": put("text", "thrice"),
    "none": put("none", 1),
    "new attribute": put_new("", "missing", 2.0),
    "stride": put("conv.stride", (2, 2)),
    "padding": put("conv.padding", (0, 0)),
    "dilation": put("conv.dilation", (2, 2)),
    "padding mode": put("conv.padding_mode", "reflect"),
    "pads of a mode": lambda model, patch: (
        patch.setattr(model.conv, "padding_mode", "circular"),
        patch.setattr(model.conv, "_reversed_padding_repeated_twice", [2, 2, 2, 2]),
    )[:0],
    "eps": put("norm.eps", 1.0),
    "class of a part": renamed,
    "activation": put("act", nn.Sigmoid),
    "part": put("last", lambda: layer()),
    "part added to a list": appended(lambda model: model.blocks, nn.Sigmoid),
    "part added to a dict": lambda model, _: called(
        lambda: model.heads.update({"b": nn.Tanh()}), lambda: model.heads.pop("b")
    ),
    "part exchanged in a dict": deleted,
    "part replaced by identity": item(lambda model: model._modules, "act", nn.Sigmoid()),
    "hook": lambda model, _: hooked(model, "register_forward_hook", lambda module, given, answer: answer * 2),
    "pre-hook": lambda model, _: hooked(model, "register_forward_pre_hook", lambda module, given: (given[0] * 2,)),
    "hook of the model": lambda model, _: hooked(
        model, "register_forward_hook", lambda module, given, answer: answer * 2, "last"
    ),
    "hook of all modules": once(lambda model, _: (
        lambda handle: called(lambda: None, handle.remove)
    )(nn.modules.module.register_module_forward_hook(lambda module, given, answer: answer * 1.5))),
    "forward of a part": lambda model, _: on_instance(model, "act", "forward", lambda self, x: x * 2),
    "method of an instance": lambda model, _: on_instance(model, "", "extra", lambda self, x: x * 2),
    "method of the class": outside(Model, "extra", lambda self, x: x * 2),
    "static method": outside(Model, "fixed", staticmethod(lambda x: x * 2)),
    "property": outside(Model, "level", property(lambda self: 3.0)),
    "forward of PyTorch's class": outside(nn.LeakyReLU, "forward", lambda self, x: x * 2),
    "forward of the class": outside(Model, "forward", lambda self, x: self.conv(x) * 2),
    "class attribute": outside(Model, "factor", 2.0),
    "class attribute of several": outside(Model, "steps", (3, 1)),
    "inherited attribute": outside(Base, "inherited", 2.0),
    "inherited attribute, overridden": once(
        lambda model, _: called(lambda: setattr(Model, "inherited", 3.0), lambda: delattr(Model, "inherited"))
    ),
    "class attribute, overridden": lambda model, _: called(
        lambda: setattr(model, "factor", 3.0), lambda: delattr(model, "factor")
    ),
    "attribute of an object's class": outside(Options, "sign", -1.0),
    "method of an object's class": outside(Options, "shift", lambda self, x: x + 7),
    "attribute of an object": put("options.bias", 1.0),
    "attribute of an object's object": lambda model, patch: (
        patch.setattr(model.options.inside, "depth", 3),
        patch.setattr(model.options, "bias", 1.0),
    )[:0],
    "list of an object": appended(lambda model: model.options.order, lambda: "b"),
    "dict of an object": item(lambda model: model.options.weights, "a", 2.0),
    "object": lambda model, patch: (lambda made: (setattr(made, "bias", 4.0), patch.setattr(model, "options", made))[:0])(Options()),
    "slot": put("slotted.gain", 2.0),
    "dict": item(lambda model: model.names, "a", 2.0),
    "order": lambda model, _: called(
        lambda: model.ordered.move_to_end("a"), lambda: model.ordered.move_to_end("a", last=False)
    ),
    "list": item(lambda model: model.sizes, 0, 2.0),
    "list, appended": appended(lambda model: model.sizes, lambda: 1.0),
    "list in a dict": item(lambda model: model.pair["inner"], 0, 2.0),
    "set": lambda model, _: called(lambda: model.kinds.add("y"), lambda: model.kinds.discard("y")),
    "another list": put("sizes", [3.0]),
    "function": put("function", torch.sigmoid),
    "partial": put("part", functools.partial(F.leaky_relu, negative_slope=2.0)),
    "keyword of a partial": lambda model, patch: patch.setitem(model.part.keywords, "negative_slope", 2.0),
    "closure of an attribute": lambda model, _: called(lambda: model.made.write(2.0), lambda: model.made.write(1.0)),
    "closure": lambda model, _: called(lambda: multiply.write(2.0), lambda: multiply.write(1.0)),  # type: ignore[attr-defined]
    "variable": lambda model, patch: patch.setitem(vars(torch_surroundings), "GAIN", 2.0),
    "list of the module": item(lambda model: STEPS, 0, 5.0),
    "dict of the module": item(lambda model: TABLE, "gain", 2.0),
    "list in dicts of the module": item(lambda model: TABLE["nested"]["deep"], 0, 2.0),
    "function of the module": lambda model, patch: patch.setitem(vars(torch_surroundings), "shifted", lambda x: x * 2),
    "function in a dict": item(lambda model: DISPATCH, "one", lambda x: x * 2),
    "default": outside(shifted, "__defaults__", (1.0,)),
    "named default": lambda model, patch: (
        patch.setitem(PARTIAL.keywords, "by", 1.0),
        patch.setitem(shifted.__kwdefaults__, "weight", 3.0),
    )[:0],
    "code": outside(doubled, "__code__", (lambda x: x * 9).__code__),
    "object of the module": outside(SETTINGS, "gain", 2.0),
    "object's object of the module": outside(SETTINGS.inner, "on", False),
    "another module": outside(OTHERS, "gain", 2.0),
    "function of PyTorch": outside(F, "batch_norm", lambda x, *a, **k: x * 2),
    "environment": lambda model, patch: patch.setenv("GAIN_OF_TEST_TORCH_CHANGED", "2"),
    "default type": lambda model, _: called(
        lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)
    ),
    "attribute of a number": put("number.gain", 2.0),
    "attribute of an enumeration's member": outside(Mode.PLAIN, "gain", 2.0),
    "attribute of a class's class": outside(Kinds, "gain", 2.0),
    "attribute of a function": outside(attributed, "gain", 2.0),
    "attribute of a tensor": put_new("offset", "gain", 2.0),
    "array of C": item(lambda model: model.memory, 0, 2.0),
    "view of a dict": item(lambda model: VIEWED, "gain", 2.0),
    "mask": once(lambda model, _: called(*(lambda mask=mask: setattr(MASKED, "mask", mask) for mask in ([0, 0], [0, 1])))),
    "object of a weak reference": outside(REFERRED, "bias", 2.0),
    "object of a proxy": outside(PROXIED, "bias", 2.0),
    "weight": added(lambda model: model.conv.weight),
    "weight's memory": moved,
    "weight's axes": turned,
    "weight, replaced": put("conv.bias", lambda: nn.Parameter(torch.ones(4), requires_grad=False)),
    "buffer": added(lambda model: model.offset),
    "buffer, replaced": put("offset", lambda: torch.ones(4, 1, 1)),
    "running mean": added(lambda model: model.norm.running_mean),
    "tensor": added(lambda model: model.plain_tensor),
    "tensor, replaced": put("plain_tensor", lambda: torch.full((1,), 3.0)),
    "no bias": put("conv.bias", None),
    "training of a norm": lambda model, _: called(
        model.norm.train, lambda: model.norm.eval().num_batches_tracked.zero_()
    ),
    "dropout": lambda model, _: called(model.dropout.train, model.dropout.eval),
}  # fmt: skip


def calls(fast: nn.Module) -> list[str]:
    return tvmconv.torch.report(fast).calls.get("", [])


@contextlib.contextmanager
def changed(case: Any, *models: nn.Module) -> Iterator[None]:
    """Change models, and at the end change them back."""
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        for at, model in enumerate(models):
            is_global = at and getattr(case, "is_global", False)
            made = None if is_global else case(model, patch)
            if isinstance(made, contextlib.AbstractContextManager):
                stack.enter_context(made)
        yield
