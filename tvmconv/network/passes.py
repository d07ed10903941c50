"""PASSES: the rewrites of a model's graph before its operators become functions, in order, one entry each.

``tvmconv inspect MODEL --stage passes`` prints this list, ``--stage NAME`` the module after one pass.
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
from .ir.extents import has_extents
from .ir.nodes import carry
from .kernels.family_sizes import COUNT, typical_extents
from .kernels.keep_floats import keep_floats
from .kernels.narrow_filters import narrow_filters
from .kernels.place import place_kernels
from .kernels.replace import ConvolutionRow
from .kernels.round_sums import round_sums
from .kernels.tabulate import tabulate
from .operators.attention import prepare_attention
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
        The module, and the options of its compilation.
    weights
        Bytes of the original module's constants.
    rewrites
        A line for each place where fixed filters were joined.
    rows
        The report on each convolution.
    in_f32
        A line for each integer layer that is computed in f32.
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
        The argument of ``tvmconv inspect --stage``.
    run
        Function from a module to the rewritten one.
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
    """Return a module after all passes, or those up to `last`, with its report (`tvmconv.network.report`).

    Raises
    ------
    InputError
        If `mod` is no module.
    TvmconvError
        If `layout` is NXC, and TVM cannot convert the network; or there is no pass `last`.
    """
    check_module(mod)
    if last is None and options.math != "reproducible":
        prepare_attention(mod, options.cpu, options.dtype)
    state = Rewritten(mod, options, constant_bytes(mod))
    for each in PASSES if last is None else PASSES[: check_pass(last) + 1]:
        with stage("rewrite"):
            after = each.run(state)
            state = replace(after, module=carry(state.module, after.module))
    return with_report(state.module, state.rows, state.rewrites, state.weights, options.math, state.in_f32)


def check_pass(name: str) -> int:
    """Return the index of a pass in PASSES; raise TvmconvError if there is none of this name."""
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
    """Return the passes as a text table: each one's name, purpose, and prerequisites."""
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
    if state.options.math in ("strict", "reproducible"):  # costs differ between CPUs
        return state
    typical = typical_extents(state.module)[COUNT // 2] if has_extents(state.module) else None
    mod, lines = join_filters(state.module, state.options.cpu, state.options.is_small, typical)
    return replace(state, module=mod, rewrites=tuple(lines))


def _compute_in(state: Rewritten) -> Rewritten:
    if state.options.dtype is None:
        return state
    mod = compute_in(state.module, state.options.dtype)
    return replace(state, module=mod, weights=constant_bytes(mod))


def _channels_last(state: Rewritten) -> Rewritten:
    """Convert a module to channels last; if that fails, and was not requested, keep it."""
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
    if state.options.math == "reproducible":  # estimates, which differ between CPUs, decide
        return state
    return replace(state, module=narrow_filters(state.module, state.options.cpu, state.options.math))


def _kernels(state: Rewritten) -> Rewritten:
    mod, rows = place_kernels(state.module, state.options, state.weights)
    return replace(state, module=mod, rows=tuple(rows))


_FUSED = {"fuse-patterns": "a fused pattern is one operator"}
PASSES = (
    NetworkPass(
        "outline", _module(_outline), "make one dataflow block, since layouts change per block; make branches functions"
    ),
    NetworkPass("fold-empty", _module(fold_empty), "replace empty tensors, which kernels do not take, by constants"),
    NetworkPass("simplify", _module(simplify), "fold constants; write bounds in one form"),
    NetworkPass("unstack", _module(unstack), "replace reductions over a stack by operations on its parts"),
    NetworkPass(
        "fuse-patterns",
        _module(fuse),
        "recognise normalizations and products written as several operators",
        {"simplify": "patterns contain constants that models compute"},
    ),
    NetworkPass(
        "move-quantizers",
        _module(move_quantizers),
        "compute moves, maximum pools and means of dequantized data in 8 bits",
        {"simplify": "scales are constants"},
    ),
    NetworkPass(
        "hoist-affine", _module(hoist), "move per-channel scales and shifts up to the convolution before them", _FUSED
    ),
    NetworkPass(
        "algebra",
        _algebra,
        "join fixed filters where that costs less",
        {"hoist-affine": "filters then contain all scales"},
    ),
    NetworkPass(
        "compute-in",
        _compute_in,
        "convert to another floating-point type, if one is given",
        {"hoist-affine": "weights with their scales are rounded once"},
    ),
    NetworkPass(
        "channels-last",
        _channels_last,
        "convert data to channels last",
        {"algebra": "its rules read filters in the model's layout"},
    ),
    NetworkPass(
        "sink-reshapes",
        _module(sink),
        "merge transpositions; move reshapes behind kernels",
        {"channels-last": "it transposes"},
    ),
    NetworkPass(
        "keep-floats",
        _keep_floats,
        "compute integer layers in f32, if requested and estimated to be faster",
        {"sink-reshapes": "operators after a layer then have its shape"},
    ),
    NetworkPass(
        "narrow-filters",
        _narrow_filters,
        "compute layers of 16-bit filters with 8-bit ones, where that is estimated to be faster",
        {"keep-floats": "the layers left are of integers"},
    ),
    NetworkPass(
        "kernels",
        _kernels,
        "replace each convolution and product, with the operators fused into it, by a kernel",
        {"sink-reshapes": "operators after a kernel then have its shape"},
    ),
    NetworkPass(
        "tabulate",
        _module(tabulate),
        "replace functions of one 8-bit number by tables",
        {"kernels": "kernels fuse the operators after them"},
    ),
    NetworkPass(
        "round-sums",
        _module(round_sums),
        "round sums of two 8-bit tensors by multiply-adds of their integers, where all results are the same",
        {"kernels": "kernels fuse sums"},
    ),
    NetworkPass(
        "recognise-activation",
        _module(recognise_activations),
        "vectorize activations outside kernels",
        {"kernels": "it handles what kernels leave"},
    ),
    NetworkPass(
        "batch-norm-to-affine",
        _module(replace_batch_norms),
        "write batch normalizations outside kernels as a product and a sum",
        {"kernels": "it handles what kernels leave"},
    ),
    NetworkPass("widen-bf16", _module(widen), "compute operators on bf16 in f32", {"kernels": "kernels take bf16"}),
    NetworkPass(
        "drop-unused",
        _module(relax.transform.DeadCodeElimination()),
        "remove unused values",
        {"kernels": "kernels leave replaced operators behind"},
    ),
)
