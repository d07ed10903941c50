"""Random programs: chains of PyTorch's operators with branches, as the text of a forward and the tensors that it reads."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

# More elements than this are no small test; numbers beyond this are few digits in types of 16 bits.
_MOST_ELEMENTS, _MOST = 20_000, 1e4
_TRIES = 200
SCOPE = {"torch": torch, "nn": nn, "F": nn.functional}


class Program(nn.Module):  # type: ignore[misc]
    """A forward of lines, each of which binds a value.

    Parameters
    ----------
    lines
        Of the forward; ``x`` is its argument.
    held
        The tensors and modules that they read, by name.
    results
        The names of the values that it returns.
    """

    def __init__(self, lines: list[str], held: dict[str, Any], results: list[str]) -> None:
        super().__init__()
        for name, each in held.items():
            if isinstance(each, nn.Module):
                self.add_module(name, each)
            else:
                self.register_buffer(name, each)
        self.lines, self.results = lines, results
        body = "".join(f"    {line}\n" for line in lines)
        scope = dict(SCOPE)
        exec(f"def forward(self, x):\n{body}    return {', '.join(results)}", scope)
        self._forward = scope["forward"]

    def forward(self, x: Any) -> Any:
        """Return the values."""
        return self._forward(self, x)

    def __str__(self) -> str:
        held = {**dict(self.named_buffers(recurse=False)), **dict(self.named_children())}
        kinds = {name: f"{tuple(each.shape)} {each.dtype}" if isinstance(each, torch.Tensor) else each for name, each in held.items()}  # fmt: skip
        return "\n".join([*self.lines, f"return {', '.join(self.results)}", *(f"{name}: {kind}" for name, kind in kinds.items())])  # fmt: skip


@dataclass
class Draw:
    """What operators draw from.

    Attributes
    ----------
    random
        The generator.
    values
        The values there are, by name.
    held
        The tensors and modules that the program has.
    """

    random: random.Random
    values: dict[str, Any]
    held: dict[str, Any] = field(default_factory=dict)

    def tensor(self, *shape: int, like: Any = None) -> str:
        """Return the text of a tensor that the program has: of a shape, or as it is given."""
        made = torch.randn(shape) / max(shape[-1] if shape else 1, 1) ** 0.5 if like is None else like
        return self._hold("w", made)

    def module(self, made: nn.Module) -> str:
        """Return the text of a module that the program has."""
        return self._hold("m", made)

    def axis(self, rank: int) -> int:
        """Return an axis, counted from either end."""
        return self.random.randrange(-rank, rank)

    def other(self, fits: Callable[[Any], bool]) -> str | None:
        """Return the name of a value that fits."""
        names = [name for name, value in self.values.items() if fits(value)]
        return self.random.choice(names) if names else None

    def _hold(self, prefix: str, made: Any) -> str:
        name = f"{prefix}{len(self.held)}"
        self.held[name] = made
        return f"self.{name}"


Operator = Callable[[Draw, str, Any], "str | None"]


def draw(seed: int, operators: dict[str, Operator], steps: int | None = None) -> tuple[Program, Any]:
    """Return a random program in eval mode, and its input, both in f32.

    Parameters
    ----------
    seed
        Says which.
    operators
        By name, what gives the text of a call on a value; None: the operator does not take it.
    steps
        How many operators; None: some.
    """
    torch.manual_seed(seed)
    random_ = random.Random(seed)
    shape = random_.choice([
        (2, 6, 9, 8), (1, 4, 12, 12), (4, 7, 9), (1, 8, 13), (6, 10), (2, 4, 5, 6, 7), (3, 4, 5, 6), (5, 16), (2, 12, 16),
        (1, 3, 16, 16), (8,), (1, 12, 7, 1), (3, 1, 5, 4, 4),
    ])  # fmt: skip
    x = torch.randn(shape)
    state = Draw(random_, {"x": x})
    lines: list[str] = []
    names = list(operators)
    for _ in range(steps or random_.randint(3, 8)):
        for _ in range(_TRIES):
            # Mostly on with the last value.
            recent = random_.random() < 0.7
            name = list(state.values)[-1] if recent else random_.choice(list(state.values))
            before, value = dict(state.held), state.values[name]
            if isinstance(value, torch.Tensor) and value.numel():
                text = operators[random_.choice(names)](state, name, value)
                if text is not None and (made := _result(text, state)) is not None:
                    called = f"v{len(lines)}"
                    lines.append(f"{called} = {text}")
                    state.values[called] = made
                    break
            state.held = before
    used = re.findall(r"\bv\d+\b", " ".join(line.partition("=")[2] for line in lines))
    results = [name for name in state.values if name not in ("x", *used)]
    held = {name: each for name, each in state.held.items() if re.search(rf"self\.{name}\b", " ".join(lines))}
    return Program(lines, held, results or ["x * 1"]).eval(), x


def _result(text: str, state: Draw) -> Any:
    """Return what a call gives, unless it fails, or is large, empty, or not finite."""
    holder = nn.Module()
    for name, each in state.held.items():
        setattr(holder, name, each.eval() if isinstance(each, nn.Module) else each)
    scope = {**SCOPE, "self": holder, **{name: each.clone() for name, each in state.values.items()}}
    try:
        with torch.no_grad():
            made = eval(text, scope)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError, AssertionError):
        return None
    if not isinstance(made, torch.Tensor) or not 0 < made.numel() <= _MOST_ELEMENTS or made.ndim > 6:
        return None
    if made.is_complex() or (made.is_floating_point() and not bool((made.abs() < _MOST).all())):
        return None
    return made
