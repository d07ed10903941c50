"""PASSES: all that happens to a model's graph before its operators become functions, in order, one line each.

``tvmconv inspect MODEL --stage passes`` prints this list, and ``--stage NAME`` the module after the pass of that name.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import tvm
from tvm import relax

from ..errors import TvmconvError, TvmconvWarning
from ..lowering.cpu.linker import prepare_runtime
from ..support.timing import stage
from .algebra import join_filters
from .ir.branches import outline
from .ir.constants import constant_bytes
from .ir.nodes import carry
from .kernels.keep_floats import keep_floats
from .kernels.narrow_filters import narrow_filters
from .kernels.place import place_kernels
from .kernels.replace import ConvolutionRow
from .kernels.tabulate import tabulate
from .options import Options
from .report import check_module, with_report
from .rewrite.batch_norm_to_affine import replace_batch_norms
from .rewrite.channel_shuffle import mark_shuffles, write_shuffles
from .rewrite.channels_last import LayoutError, channels_last
from .rewrite.compute_in import compute_in
from .rewrite.fold_empty import fold_empty
from .rewrite.fuse_patterns import fuse
from .rewrite.hoist_affine import hoist
from .rewrite.move_quantizers import move_quantizers
from .rewrite.recognise_activation import recognise_activations
from .rewrite.simplify import simplify
from .rewrite.sink_reshapes import sink
from .rewrite.unstack import unstack
from .rewrite.widen_bf16 import widen


@dataclass(frozen=True)
class Rewritten:
    """A module between two passes.

    Attributes
    ----------
    module, options
        The module; how it is compiled.
    weights
        Bytes of the constants that it came with.
    rewrites
        A line for each place where fixed filters were joined.
    rows
        What became of each convolution.
    in_f32
        A line for each layer of integers that is computed in f32.
    """

    module: tvm.IRModule
    options: Options
    weights: int
    rewrites: tuple[str, ...] = ()
    rows: tuple[ConvolutionRow, ...] = ()
    in_f32: tuple[str, ...] = ()


@dataclass(frozen=True)
class NetworkPass:
    """A step of the rewriting.

    Attributes
    ----------
    name
        Its name for ``tvmconv inspect --stage``.
    run
        From a module to the next.
    why
        Its purpose.
    after
        Passes that must have run before, and why.
    """

    name: str
    run: Callable[[Rewritten], Rewritten]
    why: str
    after: Mapping[str, str] = field(default_factory=dict)


def run(mod: tvm.IRModule, options: Options, last: str | None = None) -> tvm.IRModule:
    """Return a module after all passes, with its report (`tvmconv.network.report`); after the pass `last`, if it is given.

    Raises
    ------
    InputError
        If it is given something else than a module.
    TvmconvError
        If a `layout` of NXC was asked for, and TVM does not bring the network to it; or there is no pass `last`.
    """
    check_module(mod)
    state = Rewritten(mod, options, constant_bytes(mod))
    for each in PASSES if last is None else PASSES[: check_pass(last) + 1]:
        with stage("rewrite"):
            after = each.run(state)
            state = replace(after, module=carry(state.module, after.module))
    return with_report(state.module, state.rows, state.rewrites, state.weights, options.math, state.in_f32)


def check_pass(name: str) -> int:
    """Return the place of a pass in PASSES.

    Raises
    ------
    TvmconvError
        If there is none of this name.
    """
    names = [each.name for each in PASSES]
    if name not in names:
        raise TvmconvError(f"there is no pass {name!r} of networks; there are {', '.join(names)}")
    return names.index(name)


def use_kernels(mod: tvm.IRModule, target: str = "host", **options: Any) -> tvm.IRModule:
    """Return a Relax module with our kernels; `options` and their errors are those of :class:`Options`."""
    known = Options(target, **options)
    prepare_runtime(known.cpu.isa)
    return run(mod, known)


def listing() -> str:
    """Return the passes as a table in text: the name of each, its purpose, and what must have run before."""
    lines = []
    for number, each in enumerate(PASSES, 1):
        lines.append(f"{number:2} {each.name:22} {each.why}")
        lines += [f"{'':26}after {name}: {why}" for name, why in each.after.items()]
    return "\n".join(lines)


def _module(rewrite: Callable[[tvm.IRModule], tvm.IRModule]) -> Callable[[Rewritten], Rewritten]:
    return lambda state: replace(state, module=rewrite(state.module))


def _outline(mod: tvm.IRModule) -> tvm.IRModule:
    return relax.transform.ConvertToDataflow(1)(outline(relax.transform.ToNonDataflow()(mod)))


def _algebra(state: Rewritten) -> Rewritten:
    if state.options.math in ("strict", "reproducible"):  # what costs less is another thing on another CPU
        return state
    mod, lines = join_filters(state.module, state.options.cpu, state.options.is_small)
    return replace(state, module=mod, rewrites=tuple(lines))


def _compute_in(state: Rewritten) -> Rewritten:
    if state.options.dtype is None:
        return state
    mod = compute_in(state.module, state.options.dtype)
    return replace(state, module=mod, weights=constant_bytes(mod))


def _channels_last(state: Rewritten) -> Rewritten:
    """Bring a module to channels last; if that cannot be, and nobody asked for it, leave it."""
    if state.options.layout == "NCX":
        return state
    try:
        return replace(state, module=simplify(write_shuffles(channels_last(mark_shuffles(state.module)))))
    except LayoutError as error:
        if state.options.layout is not None:
            raise TvmconvError(f"{error}; give layout='NCX' (tvmconv compile --layout NCX)") from error
        text = f"the network keeps its layout, NCX, which may be slower: {error}"
        warnings.warn(text, TvmconvWarning, stacklevel=5)
        return state


def _keep_floats(state: Rewritten) -> Rewritten:
    if state.options.quantized != "fastest":
        return state
    mod, lines = keep_floats(state.module, state.options.cpu, state.options.math)
    return replace(state, module=mod, in_f32=tuple(lines))


def _narrow_filters(state: Rewritten) -> Rewritten:
    if state.options.math == "reproducible":  # what is faster is another thing on another CPU
        return state
    return replace(state, module=narrow_filters(state.module, state.options.cpu, state.options.math))


def _kernels(state: Rewritten) -> Rewritten:
    mod, rows = place_kernels(state.module, state.options, state.weights)
    return replace(state, module=mod, rows=tuple(rows))


_FUSED = {"fuse-patterns": "what it fuses is one operator"}
PASSES = (
    NetworkPass(
        "outline", _module(_outline), "one dataflow block, as layouts are changed block by block; branches as functions"
    ),
    NetworkPass("fold-empty", _module(fold_empty), "tensors of no elements as constants, which no kernel takes"),
    NetworkPass("simplify", _module(simplify), "constants computed, bounds spelt in one way"),
    NetworkPass("unstack", _module(unstack), "what is reduced over a stack, by its parts"),
    NetworkPass(
        "fuse-patterns",
        _module(fuse),
        "several operators as the one that they are: normalizations, products",
        {"simplify": "patterns have constants where models compute them"},
    ),
    NetworkPass(
        "move-quantizers",
        _module(move_quantizers),
        "moves, maximum pools and means of what is dequantized, in 8 bits",
        {"simplify": "scales are constants"},
    ),
    NetworkPass(
        "hoist-affine", _module(hoist), "what acts on channels, up to the convolution that computes them", _FUSED
    ),
    NetworkPass(
        "algebra",
        _algebra,
        "fixed filters joined, where that costs less",
        {"hoist-affine": "filters then have all scales"},
    ),
    NetworkPass(
        "compute-in",
        _compute_in,
        "another type of numbers, if one is given",
        {"hoist-affine": "weights with their scales are rounded once"},
    ),
    NetworkPass(
        "channels-last", _channels_last, "data channels last", {"algebra": "its rules read filters as models have them"}
    ),
    NetworkPass(
        "sink-reshapes",
        _module(sink),
        "transpositions merged, reshapes after what kernels compute",
        {"channels-last": "it transposes"},
    ),
    NetworkPass(
        "keep-floats",
        _keep_floats,
        "layers of integers in f32, if that is asked for and estimated to be faster",
        {"sink-reshapes": "what follows a layer then has its shape"},
    ),
    NetworkPass(
        "narrow-filters",
        _narrow_filters,
        "filters of 16 bits as ones of 8, where that is estimated to be faster",
        {"keep-floats": "what is left is of integers"},
    ),
    NetworkPass(
        "kernels",
        _kernels,
        "each convolution and product, with what follows it, by a kernel",
        {"sink-reshapes": "what follows a kernel then has its shape"},
    ),
    NetworkPass(
        "tabulate",
        _module(tabulate),
        "functions of one number of 8 bits as tables",
        {"kernels": "they take what follows them"},
    ),
    NetworkPass(
        "recognise-activation",
        _module(recognise_activations),
        "activations that no kernel has, as vectors",
        {"kernels": "the rest is left"},
    ),
    NetworkPass(
        "batch-norm-to-affine",
        _module(replace_batch_norms),
        "batch normalizations that no kernel has, as a product and a sum",
        {"kernels": "the rest is left"},
    ),
    NetworkPass("widen-bf16", _module(widen), "operators on bf16 in f32", {"kernels": "kernels take bf16"}),
    NetworkPass(
        "drop-unused",
        _module(relax.transform.DeadCodeElimination()),
        "what nothing reads",
        {"kernels": "they leave what they replace"},
    ),
)
