"""`UseKernels`: the pass that puts our kernels in the place of a Relax module's convolutions."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict
from functools import partial

import tvm
from tvm import relax

from ..algorithms.table import check_math
from ..checks import check_memory
from ..errors import InputError, TargetError, TvmconvError, TvmconvWarning
from ..support.progress import Progress
from ..targets.target import CpuTarget, Target
from ..tuning.records import Records
from .algebra import simplified
from .ir.branches import outlined
from .ir.constants import constant_bytes
from .ir.graph import Graph
from .ir.problem_of import NotCoveredError, is_convolution, is_product
from .kernels.build import build_kernels
from .kernels.data_matmul import DataProduct, data_product
from .kernels.fold_input_shift import take_shift
from .kernels.fuse_epilogue import Chain, Followed, follow
from .kernels.replace import Replacing, Row
from .kernels.weight_budget import room_for
from .operators.attention import products_of_attention
from .rewrite.batch_norm_to_affine import as_maps
from .rewrite.channel_shuffle import marked, written
from .rewrite.channels_last import LayoutError, channels_last
from .rewrite.fuse_patterns import joined
from .rewrite.hoist_affine import hoisted
from .rewrite.recognise_activation import joined_activations
from .rewrite.simplify import simplify
from .rewrite.sink_reshapes import moved
from .rewrite.unstack import unstacked
from .rewrite.widen_bf16 import widened

LAYOUTS = ("NXC", "NCX")
REPORT = "tvmconv_report"


class UseKernels:
    """Compute a module's convolutions, and what follows them, by our kernels.

    A convolution of fixed shapes, in f32, f16 or bf16, whose filter is a constant becomes ``call_tir`` of a lowered function with
    the packed filter as a constant; batch normalizations and other numbers by channel are folded into the filter, activations
    and sums into the kernel. Others stay as they are. :func:`report` says which, and why.

    Parameters
    ----------
    target
        As for :func:`tvmconv.building.builder.build`; a CPU.
    records
        The tuning records; absent: the user's and those that ship with tvmconv.
    layout
        ``"NXC"``: data is transposed, channels last, for the whole network. ``"NCX"``: it stays as the module has it. Absent:
        NXC, and with a warning NCX where TVM cannot do that.
    math
        As for :func:`tvmconv.building.builder.build`.
    progress
        Called as ``progress(done, total, what)`` while kernels are compiled.
    memory
        ``"default"``: where transforms (Winograd) enlarge the weights to more than 1.3 times the model's, they are left to the filters
        that they save the most time with for each byte, as long as that costs at most 2 % of the kernels' time by estimate.
        ``"small"``: no transforms, as with ``math="strict"``, and no joined filters that have more numbers than those that they
        are of. Filters are as many bytes as the model's, but for whole register tiles.
    trials, seconds
        As for :func:`tvmconv.building.builder.build`: kernels are tuned first.

    Raises
    ------
    TargetError
        If `target` is unknown, or no CPU.
    TvmconvError
        If `layout`, `math` or `memory` is none, or a `layout` of NXC was given, and TVM does not bring the network to it.
    InputError
        If it is given something else than a module.
    """

    def __init__(
        self,
        target: str = "host",
        records: Records | None = None,
        layout: str | None = None,
        math: str = "default",
        progress: Progress | None = None,
        memory: str = "default",
        trials: int = 0,
        seconds: float | None = None,
    ) -> None:
        if layout not in (None, *LAYOUTS):
            raise TvmconvError(f"layout is {layout!r}; allowed: {', '.join(LAYOUTS)}")
        check_math(math)
        check_memory(memory)
        if Target.parse(target).kind != "cpu":
            raise TargetError(f"target is {target!r}; tvmconv.relax builds networks for CPUs alone")
        self._target, self._records, self._layout, self._math = target, records, layout, math
        self._progress, self._small = progress, memory == "small"
        self._trials, self._seconds = trials, seconds

    def transformed(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return the module with our kernels."""
        _check_module(mod)
        given = constant_bytes(mod)
        # One block as long as may be: layouts are changed block by block.
        mod = relax.transform.ConvertToDataflow(1)(outlined(relax.transform.ToNonDataflow()(mod)))
        mod = hoisted(joined(unstacked(simplify(mod))))
        rewrites: list[str] = []
        if self._math != "strict":
            known = Target.parse(self._target)
            assert isinstance(known, CpuTarget)
            mod, rewrites = simplified(mod, known, self._small)
        if self._layout != "NCX":
            mod = self._laid_out(mod)
        mod = moved(mod)
        chains, rows = {}, []
        for variable, function in mod.functions_items():
            if isinstance(function, relax.Function):
                chains[variable], refused = _chains(variable.name_hint, function)
                rows += refused
        every = [chain for found in chains.values() for chain in found.values()]
        fixed = [chain for chain in every if isinstance(chain, Chain)]
        products = [chain.problem for chain in every if isinstance(chain, DataProduct)]
        # Transforms are what enlarges filters.
        math = "strict" if self._small else self._math
        built = partial(
            build_kernels,
            target=self._target,
            records=self._records,
            math=math,
            progress=self._progress,
            trials=self._trials,
            seconds=self._seconds,
        )
        room = None if self._small else room_for(fixed, mod, given)
        kernels = built([chain.problem for chain in fixed], room=room)
        replacing = Replacing(mod, kernels, built(products, prepacked=False))
        for variable, found in chains.items():
            replacing.replace(variable, found)
            rows += [replacing.row(variable.name_hint, chain) for chain in found.values()]
        mod = widened(as_maps(joined_activations(replacing.module())))
        mod = relax.transform.DeadCodeElimination()(mod)
        # Not the bare list: TVM 0.27 gives no attribute back whose text has at most 7 bytes, such as "[]".
        noted = {"convolutions": [asdict(row) for row in rows], "rewrites": rewrites, "weights": given}
        return mod.with_attr(REPORT, json.dumps(noted))

    def _laid_out(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return the module channels last; if that cannot be, and nobody asked for it, as it is."""
        try:
            return simplify(written(channels_last(marked(mod))))
        except LayoutError as error:
            if self._layout is not None:
                raise TvmconvError(f"{error}; give layout='NCX' (tvmconv compile --layout NCX)") from error
            warnings.warn(
                f"the network keeps its layout, NCX, which may be slower: {error}", TvmconvWarning, stacklevel=4
            )
            return mod


def use_kernels(
    mod: tvm.IRModule,
    target: str = "host",
    records: Records | None = None,
    layout: str | None = None,
    math: str = "default",
    progress: Progress | None = None,
    memory: str = "default",
    trials: int = 0,
    seconds: float | None = None,
) -> tvm.IRModule:
    """Return a Relax module with our kernels; parameters and errors are those of :class:`UseKernels`."""
    return UseKernels(target, records, layout, math, progress, memory, trials, seconds).transformed(mod)


def report(mod: tvm.IRModule) -> list[Row]:
    """Return what became of each convolution of a module that :class:`UseKernels` has seen.

    Raises
    ------
    TvmconvError
        If it has not.
    """
    _check_module(mod)
    text = mod.get_attr(REPORT)
    if text is None:
        raise TvmconvError("the module has no report; call use_kernels(mod, target) first")
    return [Row(**row) for row in json.loads(str(text))["convolutions"]]


def rewrites(mod: tvm.IRModule) -> list[str]:
    """Return a line for each place where fixed filters were joined (`tvmconv.network.algebra`).

    Raises
    ------
    TvmconvError
        As :func:`report`.
    """
    report(mod)
    return list(json.loads(str(mod.get_attr(REPORT)))["rewrites"])


def model_bytes(mod: tvm.IRModule) -> int:
    """Return how many bytes the constants had of the module that became this one.

    Raises
    ------
    TvmconvError
        As :func:`report`.
    """
    report(mod)
    return int(json.loads(str(mod.get_attr(REPORT)))["weights"])


def _check_module(mod: object) -> None:
    if not isinstance(mod, tvm.IRModule):
        raise InputError(f"mod is a {type(mod).__name__}; give a tvm.IRModule, which TVM's frontends make of a model")


def _chains(name: str, function: relax.Function) -> tuple[dict[relax.Var, Followed], list[Row]]:
    """Return the chains of a function by the variables of their outputs, and the convolutions that none covers."""
    graph = Graph(function)
    chains: dict[relax.Var, Followed] = {}
    refused: list[Row] = []
    attended = products_of_attention(graph)
    sums: set[relax.Var] = set()
    # A sum of two convolutions is part of the later one, as it is where a bundle is built from a model.
    for variable in reversed(graph.values):
        call = graph.call(variable)
        if call is None or variable in attended:
            continue
        chain: Followed | None
        try:
            if is_convolution(call) or (is_product(call) and graph.array(call.args[1]) is not None):
                chain = follow(variable, graph, sums)
            else:
                chain = data_product(variable, graph, sums)
        except NotCoveredError as error:
            refused.append(Row(f"{name}.{variable.name}", why=str(error)))
            continue
        if chain is not None:
            chains[chain.output] = chain
    for chain in chains.values():
        if isinstance(chain, Chain) and chain.data not in chains:
            take_shift(chain, graph)
    return dict(reversed(chains.items())), refused[::-1]
