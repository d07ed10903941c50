"""`export`: read a model by `torch.export`, and name the line of its code at which that fails; and graphs as modules."""

from __future__ import annotations

import sysconfig
import traceback
import warnings
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch._dynamo.exc import UserError
from torch.export import ExportedProgram

from ..errors import SourceError, last_line
from ..network.read.torch.ceil_pools import ceil_pools
from ..network.read.torch.whole_layers import whole_layers
from ..support.lines import line_of
from .flat import Flat
from .free_axes import FreeAxes
from .rewritten import is_same_again, may_write, show_writes, without_writes, writes, written_by_arguments
from .unchanged import put_back

_OTHERS = tuple(map(str, (Path(torch.__file__).parent, Path(__file__).parents[1])))


def export(flat: Flat, free: FreeAxes | None = None) -> Any:
    """Return a model as a program; its code's decisions by shapes are those for the example, unless axes are free.

    The least extents of free axes are excluded where its code computes them differently from the example's.

    Raises
    ------
    SourceError
        If torch.export cannot read the model, or it changes its buffers or arguments.
    """
    written: list[str] = []
    with torch.no_grad(), warnings.catch_warnings(), put_back(flat), whole_layers(), ceil_pools():
        warnings.simplefilter("ignore")
        flat.around = partial(show_writes, flat.model, written)
        try:
            program = _read(flat) if free is None else _read_free(flat, free)
            # Only this shows changes in place; it takes longer than exporting a small model.
            functional = program.run_decompositions({}) if may_write(program) else program
        except SourceError:
            raise
        except Exception as error:  # of many classes
            raise SourceError(f"torch.export cannot read the model: {_reason(error)}{_line(error)}") from error
    for name in functional.graph_signature.user_inputs_to_mutate.values():
        raise SourceError(f"the model changes {name} in each call, but a library keeps no state")
    for name, node in written_by_arguments(functional):
        name, line = name.removeprefix("model."), line_of(node)
        at = f" ({line})" if line else ""
        raise SourceError(f"the model changes {name} in each call{at}, but a library keeps no state")
    written += [name.removeprefix("model.") for name in writes(functional).values()]
    if written and not is_same_again(flat):
        raise SourceError(
            f"the model changes {', '.join(dict.fromkeys(written))} in each call, and its next answer with it, but a library"
            " keeps no state"
        )
    program = without_writes(functional) if writes(functional) else program
    if free is not None:
        free.allow_one(program, flat.tensors)
    return program


def _read(flat: Flat, free: FreeAxes | None = None, **options: Any) -> Any:
    tensors, shapes = (flat.tensors, None) if free is None else (free.widen(flat.tensors), (tuple(free.shapes),))
    return torch.export.export(flat, tensors, dynamic_shapes=shapes, strict=False, **options)


def _read_free(flat: Flat, free: FreeAxes) -> Any:
    """Return the program for free axes, from the least extents on at which the code computes alike."""
    try:
        return _read(flat, free)
    except UserError:
        # A program that checks its extents at run time shows which are allowed.
        with suppress(Exception):  # of many classes; the first says why
            narrowed = free.narrowed(_read(flat, free, prefer_deferred_runtime_asserts_over_guards=True), flat.tensors)
            if narrowed is not None:
                return _read(flat, narrowed)
        raise


def _reason(error: Exception) -> str:
    """Return the describing line of an error: PyTorch's continue with advice and traces."""
    text = str(error).strip()
    _, found, fixes = text.partition("Suggested fixes:")
    if found:  # constraints on free extents
        advice = ", ".join(map(str.strip, fixes.strip().partition("\n\n")[0].splitlines()))
        return f"its code does not do the same at all extents of dynamic_shapes; PyTorch suggests {advice}"
    first, *more = text.splitlines() or [""]
    guards = [line.strip(" -.") for line in more if "generated guard" in line]
    if guards:
        return f"its code does not do the same at all extents of dynamic_shapes: {'; '.join(guards)}"
    if first.endswith(":") and more:  # a list follows
        first += f" {more[0].strip(' -')}"
    return f"{type(error).__name__}: {first.strip()}" if text else last_line(error)


def _line(error: Exception) -> str:
    """Return the line of the model's code that raised an error, as the end of a message."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [number for number, frame in enumerate(frames) if frame.filename == Flat.forward.__code__.co_filename]
    standard = sysconfig.get_path("stdlib")
    for frame in reversed(frames[inside[-1] + 1 :] if inside else []):
        library = frame.filename.startswith(_OTHERS) or "/sympy/" in frame.filename
        if not library and not (frame.filename.startswith(standard) and "site-packages" not in frame.filename):
            return f' (File "{frame.filename}", line {frame.lineno}, in {frame.name}, {frame.line})'
    return ""


def as_module(model: Any) -> Any:
    """Return a program, or a program's module, as a module in inference mode; other objects as they are."""
    graph = model.module() if isinstance(model, ExportedProgram) else model
    # Programs' modules override `eval` to raise an error: they are for inference or training as they were exported.
    return ProgramModule(graph).eval() if isinstance(graph, fx.GraphModule) and "eval" in vars(graph) else model


class ProgramModule(nn.Module):  # type: ignore[misc]
    """Graph as a module whose ``forward`` can be replaced."""

    def __init__(self, graph: nn.Module) -> None:
        super().__init__()
        self.graph_module = graph

    def eval(self) -> ProgramModule:
        """Return the module, without calling the graph's `eval`, which raises an error."""
        self.training = False
        return self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the graph's answer."""
        return self.graph_module(*args, **kwargs)
