"""The algorithms: ways to compute a Problem, which problems each covers, and where its schedules are."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from .algorithm import Algorithm, always
from .cuda_algorithms import CUDA_ALGORITHMS
from .definitions.constant import covers_constant, covers_data
from .definitions.few_outputs import FEW_OUTPUTS, covers_reduced, prefers_reduced, prefers_rows
from .definitions.shapes import LEAST_SKIPPED, shuffles
from .definitions.winograd_cost import covers_winograd, direct_cycles, share_inside, share_met, winograd_cycles
from .errors import TvmconvError
from .problem import Problem
from .target import CpuTarget, Target

if TYPE_CHECKING:
    from .definitions.definition import Definition

# An SSE register of outputs; two multiply-adds of it start in a cycle, half the rate of full vectors. With fewer
# channels per group, lanes across groups are faster even where data is copied for each of them.
LEAST_PER_GROUP = 4
LAID_CYCLES = 1.8  # an element of planes laid into lanes of channels, or back
# 64 pages: within reach of a first level TLB, and of a second level cache. A tile's part of a larger filter lies on more.
# Measured on one Zen 5 core in place and packed ahead, GFLOP/s of 275: 128 to 512 channels (256 KiB) 272 and 273; 256 to
# 1024 (1 MiB) 243 and 272; 512 to 1024 with stride 2 (2 MiB) 165 and 270.
NEAR_BYTES = 256 * 1024
# Adding up what a tap gave an output, a store, two loads and an addition of a vector, is a twentieth of so many channels'
# sum. With 64 (33x33, dilation 12) the direct algorithm is as fast on one Zen 5 core: 0.40 and 0.41 ms.
LEAST_ADDED = 128
# Of the columns that the taps of a row meet, a tile of it that holds a few computes them all.
MOST_INSIDE = 0.9
# Vectors of a pointwise row below which rounding it up to whole tiles costs more than laying channels together: 196
# pixels are 13 vectors, computed as 14 in tiles of 2, 1.14 times the work; 441 pixels are 28, 1.02 times.
MOST_ROUNDED = 16
# Outputs of a row of a depthwise convolution from which on lanes lie along it, without a stride and with one: two vectors
# that overlap are as good as a full one, and laying channels together takes longer the more of them a stride leaves out.
# Measured on one Zen 5 core, microseconds along rows and across channels: 7x7, 1024 channels, 42 and 18; from 28x28 to
# 14x14, 256 channels, 28 and 55.
LEAST_ROW = {False: 8, True: 4}
MANY_PHASES = 16
# ``strict`` allows algorithms of class ``exact`` alone, ``tf32`` all of them, ``default`` all but those of TF32.
MATHS = ("default", "strict", "tf32")


def _define(problem: Problem, target: CpuTarget, **how: Any) -> Definition:
    from .definitions.definition import define

    return define(problem, target, **how)


def _define_ahead(problem: Problem, target: CpuTarget) -> Definition | None:
    small = problem.dtype == "f32" and 4 * prod(problem.filter_shape) <= NEAR_BYTES
    return None if small else _define(problem, target, ahead=True)


def _define_constant(problem: Problem, target: CpuTarget) -> Definition:
    from .definitions.definition import define_constant

    return define_constant(problem, target)


def _define_winograd(points: int, problem: Problem, target: CpuTarget) -> Definition:
    from .definitions.definition import define_winograd

    return define_winograd(problem, target, points)


def _define_winograd_ahead(points: int, problem: Problem, target: CpuTarget) -> Definition | None:
    from .definitions.definition import winograd_ahead

    return winograd_ahead(problem, target, points)


def _gain(problem: Problem, target: CpuTarget) -> float:
    """How many times as fast as the others an estimate must be for Winograd to be the default.

    With groups, some processes run it at half its speed (14x14, 512 channels in 32 groups: 109 or 330 microseconds). With
    many phases, each has a filter of its own and stores far apart, which takes as long with vectors of 512 bits as with
    shorter ones: 33 channels, 16x16 taps, stride 8, to 344x344: 8.6 ms, and 7.2 by the direct algorithm (one Zen 5 core).
    """
    if problem.groups > 1:
        return 2.0
    phases = prod(problem.strides) if problem.op == "convolution_backprop_data" else 1
    return 1.8 if phases >= MANY_PHASES and target.vector_bits == 512 else 1.1


def _winograd(outputs: int) -> Algorithm:
    """Return Winograd's algorithm that computes `outputs` of 3 taps, and as many points of others."""
    points = outputs + 2
    cycles = partial(winograd_cycles, points)
    return Algorithm(
        f"winograd{outputs}",
        1,
        "transform",
        partial(covers_winograd, points),
        lambda problem, target: (
            _gain(problem, target) * cycles(problem, target) + _laying(problem, target) < _exact_cycles(problem, target)
        ),
        partial(_define_winograd, points),
        "cpu_winograd",
        cycles,
        ahead=partial(_define_winograd_ahead, points),
    )


def _laying(problem: Problem, target: CpuTarget) -> float:
    """Return the cycles of laying channels together and apart again, where the planar algorithm need not.

    Long rows of few channels (16000 outputs, 64 to 128 channels, 2 taps) took a sixth to four times more by Winograd.
    """
    if problem.groups > 1 or not _prefers_planar(problem, target):
        return 0.0
    return LAID_CYCLES * (prod(problem.data_shape) + prod(problem.output_shape))


def _exact_cycles(problem: Problem, target: CpuTarget) -> float:
    """Return the least estimate of the algorithms of class ``exact``."""
    return (_dot_cycles if _covers_dot(problem, target) is None else direct_cycles)(problem, target)


def _dot_cycles(problem: Problem, target: CpuTarget) -> float:
    return direct_cycles(problem, target) / 2  # two products of each lane in a cycle


def _define_kn2row(problem: Problem, target: CpuTarget, **how: Any) -> Definition:
    from .definitions.definition import define_kn2row

    return define_kn2row(problem, target, **how)


def _define_kn2row_ahead(problem: Problem, target: CpuTarget) -> Definition:
    return _define_kn2row(problem, target, ahead=True)


def _covers_kn2row(problem: Problem, target: CpuTarget) -> str | None:
    if problem.op != "convolution":
        return "a transposed convolution computes no padding"
    if all(share_inside(problem, axis) == 1 for axis in range(problem.rank)):
        return f"no axis has {LEAST_SKIPPED} elements of padding at an end"
    if any(share_met(problem, axis) == 0 for axis in range(problem.rank)):
        return "no tap meets data"
    return _covers_direct(problem, target)


def _covers_kn2row_dot(problem: Problem, target: CpuTarget) -> str | None:
    from .definitions.pairs import reads_pairs

    if not reads_pairs(problem):
        return "pixels are no pairs of channels as they lie"
    return _covers_kn2row(problem, target) or _covers_dot(problem, target)


def _prefers_kn2row(problem: Problem, target: CpuTarget) -> bool:
    """Whether tiles across rows skip enough of the columns that tiles of one row visit, to pay for adding up."""
    full = target.vector_bits // 32
    wide = problem.out_channels // problem.groups > 2 * full and problem.in_channels // problem.groups >= LEAST_ADDED
    return wide and share_inside(problem, problem.rank - 1) <= MOST_INSIDE


def _define_planar(problem: Problem, target: CpuTarget, ahead: bool = False) -> Definition:
    from .definitions.definition import define_planar

    return define_planar(problem, target, ahead)


def _define_planar_ahead(problem: Problem, target: CpuTarget) -> Definition | None:
    """Return the definition whose filter lies in the order of the sum, where several channels are summed for several."""
    several = min(problem.in_channels, problem.out_channels) > problem.groups
    return _define_planar(problem, target, ahead=True) if problem.dtype == "f32" and several else None


def _define_reduced(problem: Problem, target: CpuTarget) -> Definition:
    from .definitions.definition import define_reduced

    return define_reduced(problem, target)


def _covers_direct(problem: Problem, target: CpuTarget) -> str | None:
    per_group = problem.out_channels // problem.groups
    if problem.groups > 1 and per_group < LEAST_PER_GROUP:
        return f"{per_group} output channels per group leave lanes empty; it takes {LEAST_PER_GROUP} or more"
    return covers_data(problem, target)


def _no_dot(problem: Problem, target: CpuTarget) -> str | None:
    """Why products of bf16 cannot be by dot products of pairs, or None if they can."""
    if problem.dtype != "bf16":
        return f"it multiplies bf16, not {problem.dtype}"
    if "avx512_bf16" not in target.features:
        return f"{target.name} has no avx512_bf16"
    if problem.in_channels // problem.groups < 2:
        return "there are no two channels to pair"
    return None


def _covers_dot(problem: Problem, target: CpuTarget) -> str | None:
    return _no_dot(problem, target) or _covers_direct(problem, target)


def _covers_grouped(problem: Problem, target: CpuTarget) -> str | None:
    per_group = problem.out_channels // problem.groups
    if problem.groups == 1:
        return "there is one group"
    if per_group >= LEAST_PER_GROUP and not shuffles(problem, 1, target):
        return f"{per_group} output channels per group fill the lanes of one group"
    return covers_data(problem, target)


def _covers_grouped_dot(problem: Problem, target: CpuTarget) -> str | None:
    if problem.in_channels // problem.groups % 2 or not shuffles(problem, 2, target):
        return "no whole groups, of pairs of channels as they lie, fill vectors"
    return _no_dot(problem, target) or covers_data(problem, target)


def _covers_planar(problem: Problem, target: CpuTarget) -> str | None:
    if problem.data_format == "NXC" and problem.out_channels > FEW_OUTPUTS:
        return f"channels lie together in {problem.data_format}, and there are more than {FEW_OUTPUTS} output channels"
    return covers_data(problem, target)


def _prefers_planar(problem: Problem, target: CpuTarget) -> bool:
    """Whether rows fill vectors and laying channels together does not pay."""
    if covers_data(problem, target):
        return False
    per_group, full = problem.out_channels // problem.groups, target.vector_bits // 32
    if problem.data_format == "NXC":
        return prefers_rows(problem, target)
    one_tap = all(k == 1 for k in problem.kernel)
    pointwise = one_tap and all(s == 1 for s in problem.strides)
    row = prod(problem.out_spatial) if pointwise else problem.out_spatial[-1]
    apart = problem.op == "convolution_backprop_data" and problem.strides[-1] > 1
    if apart and _interleaves(problem):
        row, apart = row // problem.strides[-1], False
    if _covers_dot(problem, target) is None and per_group > FEW_OUTPUTS:
        return False  # twice the rate
    if per_group <= 2 * full or problem.in_channels // problem.groups <= FEW_OUTPUTS:
        depthwise = problem.groups > 1 and problem.out_channels == problem.groups == problem.in_channels
        return row >= (LEAST_ROW[problem.strides[-1] > 1] if depthwise else full)
    if problem.op == "convolution_backprop_data" and problem.strides[-1] > 1:
        return row >= full and not apart  # in the output, vectors of a row's phase
    return row % full == 0 or (one_tap and row >= (MOST_ROUNDED if pointwise else 1) * full)


def _interleaves(problem: Problem) -> bool:
    """Whether a row's phases fill whole vectors of the output together."""
    from .definitions.backprop import interleaved_axis

    return interleaved_axis(problem, problem.rank - 1) is not None


# Of those that prefer a problem and cost the same by estimate, the first is the default.
ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm(
        "kn2row", 1, "exact", _covers_kn2row, _prefers_kn2row, _define_kn2row, "cpu_kn2row", ahead=_define_kn2row_ahead
    ),
    Algorithm(
        "kn2row_dot",
        1,
        "exact",
        _covers_kn2row_dot,
        _prefers_kn2row,
        partial(_define_kn2row, packed=2),
        "cpu_kn2row",
        _dot_cycles,
    ),
    Algorithm(
        "planar", 2, "exact", _covers_planar, _prefers_planar, _define_planar, "cpu_planar", ahead=_define_planar_ahead
    ),
    Algorithm("reduced", 1, "exact", covers_reduced, prefers_reduced, _define_reduced, "cpu_reduced"),
    Algorithm(
        "grouped_dot",
        1,
        "exact",
        _covers_grouped_dot,
        always,
        partial(_define, across=True, packed=2),
        "cpu_grouped",
        _dot_cycles,
    ),
    Algorithm("dot", 1, "exact", _covers_dot, always, partial(_define, packed=2), "cpu_direct", _dot_cycles),
    Algorithm("grouped", 1, "exact", _covers_grouped, always, partial(_define, across=True), "cpu_grouped"),
    Algorithm("direct", 1, "exact", _covers_direct, always, _define, "cpu_direct", ahead=_define_ahead),
    Algorithm("constant", 1, "exact", covers_constant, always, _define_constant, "cpu_constant"),
    _winograd(4),
    _winograd(2),
    *CUDA_ALGORITHMS,
)


def applicable(problem: Problem, target: Target, math: str = "default") -> list[Algorithm]:
    """Return the algorithms that cover `problem`, the best default first; there is always one.

    Parameters
    ----------
    math
        ``"strict"``: only those of class ``exact``. ``"tf32"``: those of class ``tf32`` too (GPUs alone have any).

    Raises
    ------
    TvmconvError
        If `math` is not one of MATHS.
    """
    check_math(math)
    candidates = [each for each in ALGORITHMS if each.kind == target.kind and allowed(each, math)]
    covering = [each for each in candidates if each.covers(problem, target) is None]
    return sorted(covering, key=lambda each: (not each.prefers(problem, target), each.cycles(problem, target)))


def allowed(algorithm: Algorithm, math: str) -> bool:
    """Whether `math` allows an algorithm."""
    if math == "tf32":
        return True
    return algorithm.numerical_class == "exact" or (algorithm.numerical_class != "tf32" and math == "default")


def check_math(math: str) -> None:
    """Raise TvmconvError if `math` is not one of MATHS."""
    if math not in MATHS:
        raise TvmconvError(
            f"math is {math!r}; allowed: default (transforms such as Winograd too), strict (exact algorithms only), "
            "tf32 (default, and on GPUs f32 numbers rounded to TF32 before they are multiplied)"
        )


def get(name: str) -> Algorithm:
    """Return the algorithm called `name`.

    Raises
    ------
    TvmconvError
        If there is none.
    """
    for algorithm in ALGORITHMS:
        if algorithm.name == name:
            return algorithm
    raise TvmconvError(f"algorithm is {name!r}; allowed: {', '.join(a.name for a in ALGORITHMS)}")
