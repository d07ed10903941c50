"""A model that reads much of its surroundings."""

from __future__ import annotations

import array
import enum
import functools
import os
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tvm")
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

GAIN = 1.0
STEPS = [1.0, 2.0]
TABLE: dict[str, Any] = {"gain": 1.0, "nested": {"deep": [1.0]}}
SETTINGS = types.SimpleNamespace(gain=1.0, inner=types.SimpleNamespace(on=True))
OTHERS = types.ModuleType("others_of_test_torch_changed")
OTHERS.__dict__["gain"] = 1.0
VIEWED = {"gain": 1.0}
VIEW = VIEWED.values()
MASKED = np.ma.masked_array([1.0, 2.0], [False, True])


class Mode(enum.Enum):
    """What is chosen by name."""

    PLAIN = "plain"
    TWICE = "twice"

    def __init__(self, _: str) -> None:
        self.gain = 1.0


class Number(float):
    """A number that has attributes."""


class Kinds(type):
    """The class of a class."""

    gain = 1.0


class Kind(metaclass=Kinds):
    """A class whose class has an attribute."""


class Options:
    """A plain object that a model has."""

    sign = 1.0

    def __init__(self) -> None:
        self.bias, self.order, self.weights, self.inside = 0.0, ["a"], {"a": 1.0}, types.SimpleNamespace(depth=1)

    def shift(self, x: Any) -> Any:
        return x + self.bias * self.inside.depth


REFERRED = Options()
PROXIED = Options()
REFERENCE, PROXY = weakref.ref(REFERRED), weakref.proxy(PROXIED)


class Slotted:
    """A plain object without a dict."""

    __slots__ = ("gain",)

    def __init__(self) -> None:
        self.gain = 1.0


class Base(nn.Module):
    """What models inherit."""

    inherited = 1.0

    def scaled(self, x: Any) -> Any:
        return x * self.inherited


def times(factor: float) -> Callable[[Any], Any]:
    """Return a function that has a variable of this one."""

    def multiplied(x: Any) -> Any:
        return x * factor

    def write(value: float) -> None:
        nonlocal factor
        factor = value

    multiplied.write = write  # type: ignore[attr-defined]
    return multiplied


def shifted(x: Any, by: float = 0.0, *, weight: float = 1.0) -> Any:
    return x + by * weight


def doubled(x: Any) -> Any:
    return x * GAIN


def attributed(x: Any) -> Any:
    return x * getattr(attributed, "gain", 1.0)


multiply = times(1.0)
DISPATCH = {"one": doubled}
PARTIAL = functools.partial(shifted, by=0.0)


class Model(Base):
    """Reads something of all kinds."""

    factor = 1.0
    steps = (1, 1)

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.last = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.act: nn.Module = nn.LeakyReLU()
        self.blocks = nn.ModuleList([nn.Conv2d(4, 4, 1)])
        self.heads = nn.ModuleDict({"a": nn.Identity()})
        self.norm, self.dropout = nn.BatchNorm2d(4, momentum=0.0), nn.Dropout(0.5)
        self.flag, self.count, self.mode, self.text, self.alpha = False, 1, Mode.PLAIN, "plain", 1.0
        self.none: Any = None
        self.ordered = OrderedDict(a=1.0, b=0.5)
        self.options, self.slotted, self.names, self.sizes = Options(), Slotted(), {"a": 1.0}, [1.0]
        self.pair = {"inner": [1.0, (1, 2)]}
        self.kinds = {"x"}
        self.function, self.part = torch.tanh, functools.partial(F.leaky_relu, negative_slope=0.5)
        self.register_buffer("offset", torch.zeros(4, 1, 1))
        self.plain_tensor = torch.ones(1)
        self.made = times(1.0)
        self.number, self.kind, self.memory = Number(1.0), Kind, array.array("f", [1.0])
        self.number.gain = 1.0  # type: ignore[attr-defined]

    def extra(self, x: Any) -> Any:
        return x

    @property
    def level(self) -> float:
        return self.alpha

    @staticmethod
    def fixed(x: Any) -> Any:
        return x

    def forward(self, x: Any, again: bool = False) -> Any:
        y = self.act(self.norm(self.conv(x))) + self.offset
        for block in self.blocks:
            y = block(y)
        for head in self.heads.values():
            y = head(y)
        for _ in range(self.count):
            y = y + 0.5
        if self.flag:
            return y
        y = y * 2 if self.mode is Mode.TWICE else y
        y = y * 3 if self.text == "thrice" else y
        y = y if self.none is None else y * 5
        y = self.options.shift(y) * self.options.sign * self.options.weights["a"] * len(self.options.order)
        first, *_ = self.ordered.values()
        y = y * first
        y = y * self.slotted.gain * self.names["a"] * sum(self.sizes) * self.pair["inner"][0] * len(self.kinds)
        y = self.part(self.function(y * 0.3)) * self.level * self.factor * self.steps[0] * self.plain_tensor
        y = self.scaled(self.extra(self.fixed(self.made(multiply(y)))))
        y = PARTIAL(shifted(DISPATCH["one"](y))) * STEPS[0] * TABLE["gain"] * TABLE["nested"]["deep"][0]
        y = y * SETTINGS.gain * OTHERS.gain if SETTINGS.inner.on else -y
        y = y * float(os.environ.get("GAIN_OF_TEST_TORCH_CHANGED", "1"))
        y = y * (2 if torch.get_default_dtype() == torch.float64 else 1)
        y = attributed(y) * self.number.gain * self.kind.gain * self.memory[0] * self.mode.gain
        y = y * sum(VIEW) * float(MASKED.sum()) * (1 + REFERENCE().bias) * (1 + PROXY.bias) * globals()["GAIN"]  # type: ignore[union-attr]
        y = y * OTHERS.__dict__["gain"] * getattr(self.offset, "gain", 1.0)
        y = y * getattr(self, "missing", 1.0) * getattr(self, f"al{'pha'}")
        return self.dropout(self.last(y))
