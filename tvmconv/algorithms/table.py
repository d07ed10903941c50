"""The table of algorithms, and their order by estimate for a Problem."""

from __future__ import annotations

from ..errors import TvmconvError
from ..problem import Problem
from ..targets.target import Target
from .algorithm import Algorithm

# ``strict`` allows algorithms of class ``exact`` alone, ``tf32`` all classes, ``default`` all but TF32, each without ordered algorithms;
# ``reproducible`` allows only those whose sums have one order.
MATHS = ("default", "strict", "tf32", "reproducible")
_ORDERED = {"ordered": True}
# Estimates err by a quarter: the tuner tries transforms whose estimate is at most the least one divided by this.
LEAST_GAIN = 0.75
# Greatest ratio of an algorithm's estimate with plain filters to that of the chosen one for which it replaces the chosen one.
LEAST_PLAIN_GAIN = 0.85

ALGORITHMS: tuple[Algorithm, ...] = (
    Algorithm("kn2row", 1, "exact", "kn2row"),
    Algorithm("kn2row_dot", 1, "exact", "kn2row", {"vnni_factor": 2}),
    Algorithm("planar", 2, "exact", "planar", integers=True),
    Algorithm("reduced", 1, "exact", "reduced"),
    Algorithm(
        "grouped_dot", 1, "exact", "direct", {"across": True, "vnni_factor": 2}, schedules="grouped", integers=True
    ),
    Algorithm("dot", 1, "exact", "direct", {"vnni_factor": 2}, integers=True),
    Algorithm("quads", 1, "exact", "direct", {"vnni_factor": 4}, integers=True),
    Algorithm("mmla", 1, "exact", "mmla"),
    Algorithm("amx", 3, "exact", "amx", integers=True),
    Algorithm("amx_halves", 1, "transform", "amx", {"product_order": 1}),
    Algorithm("amx_exact", 1, "exact", "amx", {"product_order": 2}),
    Algorithm("tap_pairs", 1, "exact", "tap_pairs", integers=True),
    Algorithm("grouped", 1, "exact", "direct", {"across": True}, schedules="grouped", integers=True),
    Algorithm("direct", 1, "exact", "direct", integers=True),
    Algorithm("phased", 1, "exact", "phased", schedules="direct", integers=True),
    Algorithm("phased_dot", 1, "exact", "phased", {"vnni_factor": 2}, schedules="direct", integers=True),
    Algorithm("constant", 1, "exact", "constant", integers=True),
    Algorithm("winograd4", 1, "transform", "winograd", {"points": 6}),
    Algorithm("winograd2", 1, "transform", "winograd", {"points": 4}),
    Algorithm("winograd2_halves", 1, "transform", "winograd_halves", {"points": 4}),
    Algorithm(
        "winograd4_integers", 1, "exact", "winograd_integers", {"points": 6}, schedules="winograd", integers=True
    ),
    Algorithm(
        "winograd2_integers", 1, "exact", "winograd_integers", {"points": 4}, schedules="winograd", integers=True
    ),
    # For plain filters.
    Algorithm("inner", 1, "exact", "inner", is_default=False),
    Algorithm("inner_dot", 1, "exact", "inner", {"vnni_factor": 2}, is_default=False),
    Algorithm("col2im", 1, "exact", "col2im", is_default=False),
    Algorithm("col2im_dot", 1, "exact", "col2im", {"vnni_factor": 2}, is_default=False),
    # The fallback where no other compiles.
    Algorithm("plain", 1, "exact", "plain", is_default=False, integers=True),
    # The same bits on every CPU.
    Algorithm("direct_ordered", 1, "exact", "direct", _ORDERED),
    Algorithm("grouped_ordered", 1, "exact", "direct", {"across": True, **_ORDERED}, schedules="grouped"),
    Algorithm("phased_ordered", 1, "exact", "phased", _ORDERED, schedules="direct"),
    Algorithm("constant_ordered", 1, "exact", "constant", _ORDERED),
    Algorithm("plain_ordered", 1, "exact", "plain", _ORDERED, is_default=False),
    Algorithm("tensorcore", 1, "exact", "tensorcore", kind="cuda"),
    Algorithm("tensorcore_tf32", 1, "tf32", "tensorcore", {"tf32": True}, kind="cuda"),
    Algorithm("wgmma", 2, "exact", "wgmma", kind="cuda"),
    Algorithm("wgmma_groups", 1, "transform", "wgmma", {"mixed": True}, kind="cuda"),
    Algorithm("cuda_fma", 1, "exact", "fma", kind="cuda"),
    Algorithm("cuda_direct", 1, "exact", "direct", kind="cuda"),
    Algorithm("cuda_constant", 1, "exact", "constant", kind="cuda"),
)


def applicable(problem: Problem, target: Target, math: str = "default") -> list[Algorithm]:
    """Return the algorithms that cover `problem`, the least estimate first; on CPUs at least one does.

    Parameters
    ----------
    math
        ``"strict"``: only those of class ``exact``. ``"tf32"``: also those of class ``tf32``, which only GPUs have.
        ``"reproducible"``: only those whose outputs have the same bits on every CPU.

    Raises
    ------
    TvmconvError
        If `math` is not one of MATHS, or no algorithm covers the problem: on GPUs those of integers, and reproducible ones.
    """
    check_math(math)
    candidates = [each for each in ALGORITHMS if each.kind == target.kind and allows(each, math, problem.is_quantized)]
    covering = [each for each in candidates if each.covers(problem, target) is None]
    if not covering and math == "reproducible":
        raise TvmconvError(f"no kernel for {target.name} is reproducible (math={math!r}); kernels for CPUs are")
    if not covering:
        raise TvmconvError(f"no kernel for {target.name} computes problems of {problem.dtype}; kernels for CPUs do")
    return sorted(covering, key=lambda each: (not each.is_default, each.cycles(problem, target)))


def for_plain_filters(name: str, problem: Problem, target: Target) -> Algorithm:
    """Return the algorithm for calls with plain filters, where `name` computes those with prepacked filters.

    Packing that pays once may not pay in each call, so another exact algorithm with equal elements replaces `name` if its estimate is
    `LEAST_PLAIN_GAIN` times as large, or less. Transforms are replaced only for filters whose vectors are contiguous (XIO): the cost of
    others, which are transposed by squares, is overestimated.
    """
    chosen = get(name)
    if chosen.numerical_class == "transform" and (problem.op, problem.filter_format) != ("convolution", "XIO"):
        return chosen
    if (own := chosen.plain_cycles(problem, target)) is None:
        return chosen
    best, least = chosen, own * LEAST_PLAIN_GAIN
    for each in ALGORITHMS:
        alike = each.options.get("vnni_factor", 1) == chosen.options.get("vnni_factor", 1)
        other_class = each.numerical_class != "exact" or each.ordered != chosen.ordered
        if each.kind != target.kind or other_class or not alike:
            continue
        if each.covers(problem, target) is None and (found := each.plain_cycles(problem, target)) and found < least:
            best, least = each, found
    return best


def worth_trying(problem: Problem, target: Target, math: str) -> list[Algorithm]:
    """Return the applicable algorithms, without transforms whose estimates exceed the least one divided by `LEAST_GAIN`."""
    found = applicable(problem, target, math)
    most = found[0].cycles(problem, target) / LEAST_GAIN
    return [each for each in found if each.numerical_class != "transform" or each.cycles(problem, target) <= most]


def allows(algorithm: Algorithm, math: str, integers: bool = False) -> bool:
    """Return whether `math` allows an algorithm; sums of `integers` are exact, and so reproducible, in any order."""
    if math == "reproducible":
        return algorithm.integers if integers else algorithm.ordered
    if algorithm.ordered:
        return False
    if math == "tf32":
        return True
    return algorithm.numerical_class == "exact" or (algorithm.numerical_class != "tf32" and math == "default")


def check_math(math: str) -> None:
    """Raise TvmconvError if `math` is not one of MATHS."""
    if math not in MATHS:
        raise TvmconvError(
            f"math is {math!r}; allowed: default (transforms such as Winograd too), strict (exact algorithms only), "
            "tf32 (default, and on GPUs f32 numbers rounded to TF32 before they are multiplied), "
            "reproducible (the same bits on every CPU)"
        )


def get(name: str) -> Algorithm:
    """Return the algorithm called `name`; raise TvmconvError if there is none."""
    for algorithm in ALGORITHMS:
        if algorithm.name == name:
            return algorithm
    raise TvmconvError(f"algorithm is {name!r}; allowed: {', '.join(a.name for a in ALGORITHMS)}")
