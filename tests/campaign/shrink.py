"""The smallest problem that fails as a given one does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tvmconv.errors import InvalidProblemError
from tvmconv.lowering.compiler import Choice
from tvmconv.problem import Problem

from .draw import Axis, assemble

# Problems tried at once: compiled together they take less time.
TOGETHER = 4
# Fields of an axis in the order in which they are reduced, and the least that each can be.
_LEAST = {"more": 0, "begin": 0, "end": 0, "d": 1, "s": 1, "k": 1, "x": 1}
# Fields that axes and channels leave as they are, and the plainest values of some.
_FIELDS = ("dtype", "data_format", "filter_format", "bias", "epilogue", "zero_point", "filter_zero_point", "bias_dtype")
_PLAIN = {"dtype": "f32", "data_format": "NXC", "filter_format": "XIO", "zero_point": 0, "filter_zero_point": 0}


def shrink(
    problem: Problem,
    choice: Choice,
    failing: Callable[[Sequence[tuple[Problem, Sequence[Choice]]]], tuple[Problem, Choice] | None],
    seconds: float,
) -> tuple[Problem, Choice]:
    """Reduce a failing problem and its schedule while it fails, for so many seconds at most.

    Parameters
    ----------
    failing
        Returns the first of the given problems that fails in the same way by one of its schedules, and that schedule.
    """
    end = time.monotonic() + seconds
    while True:
        smaller = [(each, _choices(choice)) for each in reductions(problem)]
        simpler = tuple(each for each in _choices(choice) if each != choice)[:1]
        groups = [smaller[i : i + TOGETHER] for i in range(0, len(smaller), TOGETHER)]
        if simpler:
            groups.insert(0, [(problem, simpler)])
        for group in groups:
            if time.monotonic() > end:
                return problem, choice
            found = failing(group)
            if found is not None:
                problem, choice = found
                break
        else:
            return problem, choice


def _choices(choice: Choice) -> tuple[Choice, ...]:
    """Return schedules to try in place of one, the simplest first."""
    return tuple(dict.fromkeys((Choice(choice.algorithm), Choice(choice.algorithm, choice.sketch), choice)))


def reductions(problem: Problem) -> Iterator[Problem]:
    """Yield problems that are smaller or simpler in one respect, the most so first."""
    for each in _reductions(problem):
        if each is not None and each != problem:
            yield each


def _reductions(problem: Problem) -> Iterator[Problem | None]:
    axes, groups = _axes(problem), problem.groups
    inputs, outputs = problem.in_channels // groups, problem.out_channels // groups

    def made(**changes: object) -> Problem | None:
        parts = {"batch": problem.batch, "groups": groups, "inputs": inputs, "outputs": outputs, "axes": axes}
        try:
            return assemble(problem.op, **{**parts, **changes}, fields={n: getattr(problem, n) for n in _FIELDS})  # type: ignore[arg-type]
        except InvalidProblemError:
            return None

    def other(**changes: object) -> Problem | None:
        try:
            return problem.with_(**changes)
        except InvalidProblemError:
            return None

    if problem.is_quantized:
        yield other(dtype="u8s8s32", epilogue=None, bias_dtype="")
    for dropped in range(len(problem.epilogue)):
        yield other(epilogue=problem.epilogue[:dropped] + problem.epilogue[dropped + 1 :])
    if problem.rank > 1:
        for dropped in range(problem.rank):
            yield made(axes=[axis for number, axis in enumerate(axes) if number != dropped])
    for batch in _less(problem.batch, 1):
        yield made(batch=batch)
    for fewer in _less(groups, 1):
        yield made(groups=fewer)
    for fewer in _less(inputs, 1):
        yield made(inputs=fewer)
    for fewer in _less(outputs, 1):
        yield made(outputs=fewer)
    for name, least in _LEAST.items():
        for number, axis in enumerate(axes):
            for value in _less(getattr(axis, name), least):
                yield made(axes=[*axes[:number], replace(axis, **{name: value}), *axes[number + 1 :]])
    if problem.bias:
        yield other(bias=False, bias_dtype="")
    for name, plain in _PLAIN.items():
        if getattr(problem, name) != plain:
            yield other(**{name: plain})


def _less(value: int, least: int) -> list[int]:
    """Return lesser values: the least, half, and by one, two and three quarters less."""
    lesser = (least, value // 2, value * 3 // 4, value - 2, value - 1)
    return list(dict.fromkeys(each for each in lesser if least <= each < value))


def _axes(problem: Problem) -> list[Axis]:
    """Return a problem's axes."""
    columns = zip(
        problem.in_spatial,
        problem.kernel,
        problem.strides,
        problem.dilations,
        problem.pads_begin,
        problem.pads_end,
        strict=True,
    )
    axes = [Axis(*column) for column in columns]
    if problem.op == "convolution":
        return axes
    natural = [a.s * (a.x - 1) + a.d * (a.k - 1) + 1 - a.begin - a.end for a in axes]
    return [replace(a, more=y - n) for a, y, n in zip(axes, problem.out_spatial, natural, strict=True)]
