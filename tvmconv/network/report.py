"""The report on a module's convolutions, an attribute of the module."""

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
    """Raise InputError if `mod` is no module."""
    if not isinstance(mod, tvm.IRModule):
        raise InputError(f"mod is a {type(mod).__name__}; give a tvm.IRModule, which TVM's frontends make of a model")


def with_report(
    mod: tvm.IRModule,
    rows: Sequence[ConvolutionRow],
    rewrites: Sequence[str],
    weights: int,
    math: str,
    in_f32: Sequence[str],
) -> tvm.IRModule:
    """Return a module with its report; `weights` are the bytes of the original module's constants, `math` is an option."""
    # Not a bare list: TVM 0.27 loses attributes whose text has at most 7 bytes, such as "[]".
    given = {
        "convolutions": [asdict(row) for row in rows],
        "rewrites": list(rewrites),
        "weights": weights,
        "math": math,
        "in_f32": list(in_f32),
    }
    return mod.with_attr(_REPORT, json.dumps(given))


def report(mod: tvm.IRModule) -> list[ConvolutionRow]:
    """Return a row for each convolution of a module from `tvmconv.network.passes`.

    Raises
    ------
    TvmconvError
        If the module has no report.
    """
    return [ConvolutionRow(**row) for row in notes_of(mod)["convolutions"]]


def rewrites(mod: tvm.IRModule) -> list[str]:
    """Return a line for each place where fixed filters were joined (`tvmconv.network.algebra`); errors are those of :func:`report`."""
    return list(notes_of(mod)["rewrites"])


def in_f32(mod: tvm.IRModule) -> list[str]:
    """Return a line for each integer layer that is computed in f32 (`tvmconv.network.kernels.keep_floats`); errors are those of :func:`report`."""
    return list(notes_of(mod).get("in_f32", ()))


def notes_of(mod: tvm.IRModule) -> dict[str, Any]:
    """Return the arguments of :func:`with_report` by name; errors are those of :func:`report`."""
    check_module(mod)
    text = mod.get_attr(_REPORT)
    if text is None:
        raise TvmconvError("the module has no report; call use_kernels(mod, target) first")
    found: dict[str, Any] = json.loads(str(text))
    return found
