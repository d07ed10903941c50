"""Report what became of a module's convolutions, as its attribute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import tvm

from ..errors import InputError, TvmconvError
from .kernels.replace import ConvolutionRow

_REPORT = "tvmconv_report"


def check_module(mod: object) -> None:
    """Raise InputError if something is no module."""
    if not isinstance(mod, tvm.IRModule):
        raise InputError(f"mod is a {type(mod).__name__}; give a tvm.IRModule, which TVM's frontends make of a model")


def with_report(
    mod: tvm.IRModule,
    rows: Sequence[ConvolutionRow],
    rewrites: Sequence[str],
    weights: int,
    math: str,
    in_f32: Sequence[str] = (),
) -> tvm.IRModule:
    """Return a module with its report; `weights` are the bytes of the constants that it had as it came, `math` is an option."""
    # Not the bare list: TVM 0.27 gives no attribute back whose text has at most 7 bytes, such as "[]".
    noted: dict[str, Any] = {
        "convolutions": [asdict(row) for row in rows],
        "rewrites": list(rewrites),
        "weights": weights,
    }
    noted |= {"math": math, "in_f32": list(in_f32)}
    return mod.with_attr(_REPORT, json.dumps(noted))


def report(mod: tvm.IRModule) -> list[ConvolutionRow]:
    """Return what became of each convolution of a module that `tvmconv.network.passes` has seen.

    Raises
    ------
    TvmconvError
        If it has not.
    """
    check_module(mod)
    text = mod.get_attr(_REPORT)
    if text is None:
        raise TvmconvError("the module has no report; call use_kernels(mod, target) first")
    return [ConvolutionRow(**row) for row in json.loads(str(text))["convolutions"]]


def rewrites(mod: tvm.IRModule) -> list[str]:
    """Return a line for each place where fixed filters were joined (`tvmconv.network.algebra`).

    Raises
    ------
    TvmconvError
        As :func:`report`.
    """
    report(mod)
    return list(json.loads(str(mod.get_attr(_REPORT)))["rewrites"])


def in_f32(mod: tvm.IRModule) -> list[str]:
    """Return a line for each layer of integers that is computed in f32 (`tvmconv.network.kernels.keep_floats`).

    Raises
    ------
    TvmconvError
        As :func:`report`.
    """
    report(mod)
    return list(json.loads(str(mod.get_attr(_REPORT))).get("in_f32", ()))


def math_of(mod: tvm.IRModule) -> str:
    """Return the option `math` that a module's kernels are by.

    Raises
    ------
    TvmconvError
        As :func:`report`.
    """
    report(mod)
    return str(json.loads(str(mod.get_attr(_REPORT)))["math"])


def model_bytes(mod: tvm.IRModule) -> int:
    """Return how many bytes the constants had of the module that became this one.

    Raises
    ------
    TvmconvError
        As :func:`report`.
    """
    report(mod)
    return int(json.loads(str(mod.get_attr(_REPORT)))["weights"])
