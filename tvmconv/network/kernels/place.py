"""Place kernels: find their problems, build them, and replace operators by calls."""

from __future__ import annotations

from functools import partial

import tvm
from tvm import relax

from ...building.decision.rank import Room
from ...support.timing import stage
from ..ir.graph import Graph
from ..ir.problem_of import NotCoveredError, is_convolution, is_product
from ..operators.attention import products_of_attention
from ..options import Options
from .build import build_kernels
from .data_matmul import DataProduct, data_product
from .families import build_families
from .family_sizes import sizes_of
from .fold_input_shift import take_shift
from .fuse_epilogue import EpilogueChain, Followed, Taken, follow
from .replace import ConvolutionRow, KernelReplacing
from .weight_budget import room_for


def place_kernels(mod: tvm.IRModule, options: Options, weights: int) -> tuple[tvm.IRModule, list[ConvolutionRow]]:
    """Return a module that calls our kernels, and a row for each convolution; `weights` are the bytes of the model's constants."""
    chains, rows = {}, []
    reproducible = options.math == "reproducible"
    # Strict math has no transforms, which enlarge filters.
    math = "strict" if options.is_small and not reproducible else options.math
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            chains[variable], refused = chains_of(variable.name_hint, function, attends=not reproducible)
            rows += refused
    every = [chain for found in chains.values() for chain in found.values()]
    fixed = [chain for chain in every if isinstance(chain, EpilogueChain) and not chain.free]
    products = [chain.problem for chain in every if isinstance(chain, DataProduct)]
    built = partial(
        build_kernels,
        target=options.target,
        records=options.records,
        math=math,
        progress=options.progress,
        trials=options.trials,
        seconds=options.seconds,
    )
    room = Room(0) if options.is_small else room_for(fixed, mod, weights)
    kernels = built([chain.problem for chain in fixed], room=room)
    free = build_families(sizes_of(every, mod), options.target, math, options.progress)
    replacing = KernelReplacing(
        mod, kernels, built(products, prepacked=False), free, packs_late=options.file == "small"
    )
    for variable, found in chains.items():
        with stage("pack"):
            replacing.replace(variable, found)
        rows += [replacing.row(variable.name_hint, chain) for chain in found.values()]
    return replacing.module(), rows


def chains_of(
    name: str, function: relax.Function, attends: bool = True
) -> tuple[dict[relax.Var, Followed], list[ConvolutionRow]]:
    """Return the chains of a function by their output variables, and a row for each convolution that no kernel covers.

    If it `attends`, products of attention are left to the function of attention.
    """
    graph = Graph(function)
    chains: dict[relax.Var, Followed] = {}
    refused: list[ConvolutionRow] = []
    attended = products_of_attention(graph) if attends else set()
    taken: Taken = {}
    # Backwards: the later of two added convolutions takes the sum, as where a bundle is built from a model.
    for variable in reversed(graph.values):
        call = graph.call(variable)
        if call is None or variable in attended:
            continue
        chain: Followed | None
        try:
            if is_convolution(call) or (is_product(call) and graph.array(call.args[1]) is not None):
                chain = follow(variable, graph, taken)
            else:
                chain = data_product(variable, graph, taken)
        except NotCoveredError as error:
            refused.append(ConvolutionRow(f"{name}.{variable.name}", why=str(error)))
            continue
        if chain is not None:
            chains[chain.output] = chain
    for chain in chains.values():
        if isinstance(chain, EpilogueChain) and chain.data not in chains:
            take_shift(chain, graph)
    return dict(reversed(chains.items())), refused[::-1]
