"""Axes of ConvolutionBackpropData's windows, by stride phases.

Per axis, output y gathers data x and tap k with ``x*s + k*d = t``, ``t = y + pad_begin``. With G = gcd(s, d),
S = s/G and D = d/G, a tap can meet t only if G divides t, and then exactly the taps ``k = k0 + j*S`` do, where
``k0*d = t (mod s)`` and 0 <= k0 < S. Writing ``t = Q*s + r`` they read ``x = Q - (k0*d)//s - j*D``. So the outputs of
one k0, one in every s, are a dense convolution of stride 1 and dilation D with every S-th tap, and each k0 is
a phase. Phases k0 < K mod S have one tap more than the others; phases with equally many taps form one window.
Outputs that no tap, or no window with data, meets are filled first.
"""

from __future__ import annotations

from itertools import product
from math import gcd

from ..problem import Problem
from .subconvolution import Axis, Expr


def backprop_axes(problem: Problem) -> list[tuple[Axis, ...]]:
    """Return the spatial axes of each sub-convolution of a ConvolutionBackpropData."""
    return list(product(*(_axis_classes(problem, axis) for axis in range(problem.rank))))


def interleaved_axes(problem: Problem) -> list[tuple[Axis, ...]]:
    """Return the axes of `backprop_axes`, but with all phases of a row as one in output order where that is possible."""
    row = interleaved_axis(problem, problem.rank - 1)
    if row is None or problem.strides[-1] == 1:
        return backprop_axes(problem)
    classes = [_axis_classes(problem, axis) for axis in range(problem.rank - 1)]
    return [(*axes, row) for axes in product(*classes)]


def interleaved_axis(problem: Problem, axis: int) -> Axis | None:
    """Return an axis with all phases in the order of their outputs; None if some have no tap, or phases have unequally many outputs.

    The additional tap of phases with one tap less is beyond the filter's end.
    """
    s, d, begin, taps = problem.strides[axis], problem.dilations[axis], problem.pads_begin[axis], problem.kernel[axis]
    if gcd(s, d) > 1 or taps < s or problem.out_spatial[axis] % s:
        return None
    inverse, most = pow(d, -1, s), -(-taps // s)

    def first_tap(phase: Expr) -> Expr:
        return (phase + begin) * inverse % s

    return Axis(
        inputs=problem.in_spatial[axis],
        outputs=problem.out_spatial[axis] // s,
        taps=most,
        stride=1,
        dilation=d,
        phases=s,
        offset=lambda phase: (phase + begin) // s - first_tap(phase) * d // s - (most - 1) * d,
        filter_tap=lambda phase, k: first_tap(phase) + (most - 1 - k) * s,
        store_index=lambda phase, q: q * s + phase,
        store_extent=problem.out_spatial[axis],
        always_inside=True,
    )


def covers_output(problem: Problem) -> bool:
    """Return whether windows of `backprop_axes` write all outputs; otherwise these are filled with the bias first."""
    return all(_covers_axis(problem, axis) for axis in range(problem.rank))


def _covers_axis(problem: Problem, axis: int) -> bool:
    s, classes = problem.strides[axis], _axis_classes(problem, axis)
    met = {each.store_index(phase, 0) % s for each in classes for phase in range(each.phases)}
    return all(y % s in met for y in range(min(problem.out_spatial[axis], s)))


def _axis_classes(problem: Problem, axis: int) -> list[Axis]:
    """Return the axis for each number of taps that its phases have, if these taps meet data."""
    taps, phase_stride = (
        problem.kernel[axis],
        problem.strides[axis] // gcd(problem.strides[axis], problem.dilations[axis]),
    )
    more = taps % phase_stride
    classes = [(0, more, taps // phase_stride + 1), (more, phase_stride - more, taps // phase_stride)]
    axes = [_axis(problem, axis, *phases) for phases in classes if phases[1] and phases[2]]
    return [each for each in axes if each.meets_data]


def _axis(problem: Problem, axis: int, first: int, phases: int, taps: int) -> Axis:
    s, d, begin, y = problem.strides[axis], problem.dilations[axis], problem.pads_begin[axis], problem.out_spatial[axis]
    common = gcd(s, d)
    phase_stride, dilation = s // common, d // common
    wraps = (first + phases - 1) * d >= s  # else k0*d < s: its quotient by s is 0

    def remainder(phase: Expr) -> Expr:
        return (first + phase) * d % s if wraps else (first + phase) * d

    # For each phase, the Q of its first output, and the number of its outputs.
    lowests = [-((remainder(phase) - begin) // s) for phase in range(phases)]
    counts = [(y - 1 + begin - remainder(phase)) // s - low + 1 for phase, low in enumerate(lowests)]

    def lowest(phase: Expr) -> Expr:
        # Whole strides of the padding are a term of their own: TVM 0.27 finds no bounds of quotients below -1.
        return lowests[0] if len(set(lowests)) == 1 else begin // s - (remainder(phase) - begin % s) // s

    return Axis(
        inputs=problem.in_spatial[axis],
        outputs=max(counts),
        taps=taps,
        stride=1,
        dilation=dilation,
        phases=phases,
        # Taps run backwards (j' = taps - 1 - j), so that data is read forwards.
        offset=lambda phase: lowest(phase) - (taps - 1) * dilation - ((first + phase) * d // s if wraps else 0),
        filter_tap=lambda phase, k: first + phase + (taps - 1 - k) * phase_stride,
        store_index=lambda phase, q: (q + lowest(phase)) * s + remainder(phase) - begin,
        store_extent=y,
        always_inside=len(set(counts)) == 1,
    )
