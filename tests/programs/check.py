"""A random program by `tvmconv.torch.optimize` and by PyTorch."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import torch

import tvmconv.torch
from tvmconv.errors import TvmconvError, TvmconvWarning
from tvmconv.torch.examples import is_no_worse

from .draw import Program, draw
from .operators import OPERATORS

LAYOUTS = ("contiguous", "channels last", "strided")
DTYPES = (torch.float32, torch.bfloat16)
# Relative L2 error in f32, of chains that may cancel; of types of few digits PyTorch's own error is what it is compared with.
_ALLOWED = 1e-4


@dataclass(frozen=True)
class Outcome:
    """Result of a program: right, refused (PyTorch computes a part of it, with a reason), wrong, or failed."""

    kind: str
    detail: str


def laid(data: Any, layout: str) -> Any:
    """Return data that lies otherwise."""
    if layout == "channels last" and data.ndim in (4, 5):
        return data.contiguous(memory_format=torch.channels_last if data.ndim == 4 else torch.channels_last_3d)
    if layout == "strided" and data.ndim > 1:
        return data.mT.contiguous().mT
    return data


def check(program: Program, data: Any, layout: str, dtype: Any) -> Outcome:
    """Return what comes of a program and its input, both in f32, in a layout and a type."""
    model, given = program.to(dtype), laid(data.to(dtype), layout)
    if layout == "channels last":
        for each in model.modules():
            if any(parameter.ndim == 4 for parameter in each.parameters(recurse=False)):
                each.to(memory_format=torch.channels_last)
    other = laid((data.flip(-1) * 0.9).to(dtype), layout)
    with torch.no_grad():
        try:
            right = [model(each) for each in (given, other)]
        except RuntimeError as error:
            return Outcome("right", f"PyTorch has none: {error}")
    notes: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fast = tvmconv.torch.optimize(model, given, progress=None)
        notes = [str(each.message) for each in caught if issubclass(each.category, TvmconvWarning)]
        report = tvmconv.torch.report(fast)
    except TvmconvError as error:
        kind = "wrong" if "another answer" in str(error) else "refused"
        return Outcome("right" if "it computes nothing" in str(error) else kind, str(error))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is what is looked for
        return Outcome("failed", f"{type(error).__name__}: {error}")
    refused = [f"{row.computes}: {row.why}" for row in report if row.by == "PyTorch" and "stands alone" not in row.why]
    refused += [f"{path or 'the model'}: {why}" for path, why in report.refused.items()]
    if any("another answer" in each for each in refused):
        return Outcome("wrong", "; ".join(refused))
    with torch.no_grad():
        found = [fast(each) for each in (given, other)]
    if dtype != torch.float32:
        exact = program.float()
        with torch.no_grad():
            exactly = [exact(each.float()) for each in (given, other)]
        wrong = [at for at in range(2) if not is_no_worse(found[at], exactly[at], [(right[at], exactly[at])])]
        wrong += [at for at in range(2) if difference(found[at], right[at], float("inf"))]
    else:
        wrong = [at for at in range(2) if difference(found[at], right[at], _ALLOWED)]
    if wrong:
        return Outcome("wrong", "; ".join(difference(found[at], right[at], _ALLOWED) for at in wrong))
    return Outcome("refused" if refused or notes else "right", "; ".join([*refused, *notes]))


def difference(found: Any, right: Any, allowed: float) -> str:
    """Return how answers differ, by more than a relative L2 error of floating point numbers, or at all; empty: they do not."""
    if isinstance(right, tuple):
        return next((f"{at}: {each}" for at, each in enumerate(map(difference, found, right, [allowed] * len(right))) if each), "")  # fmt: skip
    if (found.shape, found.dtype) != (right.shape, right.dtype):
        return f"{found.dtype} {tuple(found.shape)}, right is {right.dtype} {tuple(right.shape)}"
    if allowed == float("inf"):
        return ""
    if not right.is_floating_point():
        return "" if torch.equal(found, right) else f"{int((found != right).sum())} of {right.numel()} differ"
    if not torch.equal(found.isfinite(), right.isfinite()):
        return "other numbers are not finite"
    kept = right.isfinite()
    error, size = (float(each[kept].double().norm()) for each in (found - right, right))
    return "" if error <= allowed * max(size, 1e-3) else f"error {error} of {size}"


def check_seed(seed: int, steps: int | None = None) -> tuple[Outcome, str]:
    """Return what comes of a seed's program, in a layout and a type that the seed says, and its text."""
    program, data = draw(seed, OPERATORS, steps)
    layout, dtype = LAYOUTS[seed % 3], DTYPES[seed // 3 % 2]
    text = f"seed {seed}, {layout}, {dtype}, x: {tuple(data.shape)}\n{program}"
    return check(program, data, layout, dtype), text
