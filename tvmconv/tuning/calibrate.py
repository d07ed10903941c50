"""Fit a CPU's row of the cost model to kernels that are built for it and timed on one core.

Each of `PROBLEMS` has algorithms in which one event is most of the time, so that together they determine all coefficients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from math import inf

from ..algorithms import table
from ..algorithms.cpu.model.cold import ColdSample, cold_lines, fit_cold
from ..algorithms.cpu.model.fit import Sample, fit
from ..errors import TvmconvError
from ..isa.machine import model_name
from ..problem import Problem
from ..signature import format_signature, parse_signature
from ..targets.costs import Costs
from ..targets.target import CpuTarget
from .evaluate import Evaluator
from .search import Candidate

# Two problems of each kind, a small one and one whose arrays L2 does not keep.
PROBLEMS = (
    # Multiply-adds in tiles; lines of the filter from L3 and from memory; a single pixel.
    "conv2d-n1-i64x56x56-o64x56x56-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "conv2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i512x7x7-o512x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i960x7x7-o1024x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i512x2x2-o512x2x2-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i512x13x13-o512x13x13-k5x5-s1x1-d1x1-p2x2_2x2-g1-NXC-XIO-f32",
    # Short sums; outputs that leave L2; few output channels.
    "conv2d-n1-i3x256x256-o32x256x256-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i32x64x64-o9x64x64-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i64x112x112-o3x112x112-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    # Winograd's transforms: of data, of outputs, of one axis, of three.
    "conv2d-n1-i16x112x112-o16x112x112-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv1d-n1-i64x8000-o64x8000-k3-s1-d1-p1_1-g1-NXC-XIO-f32",
    "conv3d-n1-i32x16x28x28-o32x16x28x28-k3x3x3-s1x1x1-d1x1x1-p1x1x1_1x1x1-g1-NXC-XIO-f32",
    # Planes: copied, transposed, gathered and scattered.
    "conv2d-n1-i64x28x28-o64x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32",
    "conv2d-n1-i16x112x112-o64x112x112-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
    "conv2d-n1-i256x28x28-o96x28x28-k1x1-s1x1-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
    "conv2d-n1-i57x56x56-o54x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-f32",
    "conv2d-n1-i128x56x56-o64x28x28-k1x1-s2x2-d1x1-p0x0_0x0-g1-NCX-OIX-f32",
    "conv1d-n1-i64x4096-o128x4096-k3-s1-d9-p9_9-g1-NCX-OIX-f32",
    # Phases of transposed convolutions.
    "backprop2d-n1-i128x16x16-o64x32x32-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "backprop2d-n1-i33x20x20-o33x168x168-k16x16-s8x8-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "backprop2d-n1-i64x64x64-o32x128x128-k3x3-s2x2-d1x1-p1x1_0x0-g1-NCX-OIX-f32",
    # Depthwise and groups, in both layouts.
    "conv2d-n1-i256x28x28-o256x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g256-NXC-XIO-f32",
    "conv2d-n1-i128x56x56-o128x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g128-NCX-OIX-f32",
    "conv2d-n1-i1024x7x7-o1024x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1024-NCX-OIX-f32",
    "conv2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-f32",
    # Taps of wide padding, by themselves.
    "conv2d-n1-i256x21x21-o128x21x21-k3x3-s1x1-d6x6-p6x6_6x6-g1-NXC-XIO-f32",
    "conv2d-n1-i64x33x33-o64x33x33-k3x3-s1x1-d12x12-p12x12_12x12-g1-NXC-XIO-f32",
    # Dense ones in bf16, whose pairs are copied, and multiplied by dot products where the CPU has these.
    "conv2d-n1-i128x28x28-o128x28x28-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-bf16",
    "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-bf16",
)
# Problems for cold filters: of many groups, of a few rows of tiles, filters that L2 keeps, that only L3 keeps.
COLD_PROBLEMS = (
    "conv2d-n1-i512x14x14-o512x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-f32",
    "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i96x14x14-o96x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i432x14x14-o448x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32",
    "conv2d-n1-i256x14x14-o256x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
    "conv2d-n1-i512x7x7-o512x7x7-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32",
)


def calibrate(
    target: CpuTarget,
    evaluator: Evaluator,
    cold: Evaluator,
    progress: Callable[[int, int, str], None] = lambda *_: None,
) -> Costs:
    """Return the row of the machine's CPU, fitted to default schedules that `evaluator` times, with one thread.

    `cold` times them with filters from memory.

    Raises
    ------
    TvmconvError
        If hardly any kernel can be timed: most coefficients would be the nearest CPU's.
    """
    samples: list[Sample] = []
    for number, signature in enumerate(PROBLEMS):
        progress(number, len(PROBLEMS), signature)
        samples += samples_of(parse_signature(signature), target, evaluator)
    if len({sample.signature for sample in samples}) < len(PROBLEMS) / 2:
        raise TvmconvError(
            f"only {len(samples)} kernels of {len(PROBLEMS)} problems could be timed for {target.name}; see tvmconv build for one of them: {PROBLEMS[0]}"
        )
    pairs = list(cold_pairs(target, evaluator, cold, progress))
    return row_of(samples, target, pairs)


def row_of(samples: Iterable[Sample], target: CpuTarget, pairs: Iterable[tuple[Sample, Sample]] = ()) -> Costs:
    """Return the row fitted to a CPU's samples, and to pairs with hot and cold filters; other coefficients are the nearest CPU's."""
    taken = list(samples)
    source = f"tvmconv calibrate: {len(taken)} kernels on one core of {model_name()}"
    row = replace(fit(taken, target.costs), l2=target.l2, l3=target.l3, source=source)
    return cold_row(row, pairs, target)


def cold_row(row: Costs, pairs: Iterable[tuple[Sample, Sample]], target: CpuTarget) -> Costs:
    """Return a row with the coefficients of cold filters that pairs of samples give, with hot and with cold ones."""
    samples = []
    for hot, cold in pairs:
        problem = parse_signature(hot.signature)
        counts = cold_lines(problem, table.get(hot.algorithm).filter_bytes(problem, target))
        took = sum(count * row.coefficient(name) for name, count in hot.counts.items())
        samples.append(ColdSample(cold.seconds / hot.seconds, took, counts))
    return fit_cold(samples, row)


def cold_pairs(
    target: CpuTarget, hot: Evaluator, cold: Evaluator, progress: Callable[[int, int, str], None] = lambda *_: None
) -> Iterator[tuple[Sample, Sample]]:
    """Yield the times of default schedules of `COLD_PROBLEMS` with filters in caches and in memory, measured by two evaluators."""
    for number, signature in enumerate(COLD_PROBLEMS):
        progress(number, len(COLD_PROBLEMS), signature)
        problem = parse_signature(signature)
        times = {sample.algorithm: sample for sample in samples_of(problem, target, hot)}
        for sample in samples_of(problem, target, cold):
            if sample.algorithm in times:
                yield times[sample.algorithm], sample


def samples_of(problem: Problem, target: CpuTarget, evaluator: Evaluator) -> Iterator[Sample]:
    """Yield the time of each algorithm's default schedule for a problem."""
    spaces = [space for space in evaluator.spaces(problem, target, "default") if space.algorithm != "plain"]
    candidates: list[Candidate] = [space.defaults[0] for space in spaces]
    for trial in evaluator.trials(problem, target, spaces, candidates, inf):
        if trial.seconds is not None:
            name = trial.candidate.algorithm
            counts = table.get(name).estimate(problem, target)
            yield Sample(format_signature(problem), name, trial.seconds, counts)
