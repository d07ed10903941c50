"""Problems drawn over the whole contract: small ones for what is computed, layers for how it is scheduled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

from tvmconv.dtypes import QUANTIZED, ROWS, types_of
from tvmconv.epilogue import QUANTIZERS, STEPS
from tvmconv.errors import InvalidProblemError
from tvmconv.frontends import read_source
from tvmconv.problem import DATA_FORMATS, DTYPES, FILTER_FORMATS, OPS, Problem

from .layers import LAYERS, Layer

# The share of layers among problems that may be some, half of them real; and what a problem may take: flops, and bytes of all its arrays.
LAYER_SHARE = 0.4
SMALL_FLOPS, SMALL_BYTES = 3_000_000, 1_000_000
LAYER_FLOPS, LAYER_BYTES = 1_000_000_000, 64_000_000
EPILOGUE_SHARE = 0.35
# Zero batch, channels or taps, which have an algorithm of their own.
PATCH_SHARE = 0.08  # of small problems, those of which no two outputs read the same data, as of vision transformers
EDGE_SHARE = 0.01
# What stands among types for all those of integers; and the share of zero points that are ends of their range, or none.
INTEGERS = "integers"
KINDS = (*DTYPES, INTEGERS)
END_SHARE = 0.7


@cache
def smooth(most: int) -> tuple[int, ...]:
    """Return the products of 2, 3, 5 and 7 up to `most`: what channels of networks are."""
    found = {1}
    for prime in (2, 3, 5, 7):
        grown = set(found)
        for each in found:
            while (each := each * prime) <= most:
                grown.add(each)
        found = grown
    return tuple(sorted(found))


def problem(draw: random.Random, dtypes: tuple[str, ...]) -> Problem:
    """Draw a problem of one of the types."""
    if draw.random() < LAYER_SHARE:
        return _until_valid(draw, real_layer if draw.random() < 0.5 else layer, dtypes)
    return _until_valid(draw, small, dtypes)


def small_problem(draw: random.Random, dtypes: tuple[str, ...]) -> Problem:
    """Draw a small problem of one of the types."""
    return _until_valid(draw, small, dtypes)


def _until_valid(
    draw: random.Random, kind: Callable[[random.Random, dict[str, Any]], Problem | None], dtypes: tuple[str, ...]
) -> Problem:
    while True:
        dtype = draw.choice(dtypes)
        fields = {
            "data_format": draw.choice(DATA_FORMATS),
            "filter_format": draw.choice(FILTER_FORMATS),
            "bias": draw.random() < 0.4,
        }
        steps = _steps(draw) if draw.random() < EPILOGUE_SHARE else ()
        fields |= _types(draw, dtype, fields["bias"], steps)
        try:
            drawn = kind(draw, fields)
        except InvalidProblemError:
            continue
        if drawn is not None:
            return drawn


def kind_of(drawn: Problem) -> str:
    """Return the type, of floating-point numbers, or what stands for those of integers."""
    return INTEGERS if drawn.is_quantized else drawn.dtype


def _types(draw: random.Random, dtype: str, bias: bool, steps: Iterable[str]) -> dict[str, Any]:
    """Draw types of arrays, zero points and the whole epilogue, which ends with a quantizer where the output is of 8 bits."""
    zero_point, filter_zero_point, bias_dtype, whole = 0, 0, "", list(steps)
    if dtype == INTEGERS:
        dtype = draw.choice(QUANTIZED)
        data, filter_, _, output = types_of(dtype)
        zero_point, filter_zero_point = _zero_point(draw, data), draw.choice((0, 0, _zero_point(draw, filter_)))
        if output == "s32":
            whole = []
        elif "scale" not in whole:
            whole.insert(0, "scale")
        if output in ("u8", "s8"):
            rounding, scale = draw.choice(sorted(QUANTIZERS)), draw.choice((0.1, 0.05, 1))
            whole.append(f"{rounding}({scale},{_zero_point(draw, output)})")
        bias_dtype = draw.choice(("", "f32")) if bias and output != "s32" else ""
    return {
        "dtype": dtype,
        "zero_point": zero_point,
        "filter_zero_point": filter_zero_point,
        "bias_dtype": bias_dtype,
        "epilogue": "-".join(whole) or None,
    }


def _zero_point(draw: random.Random, dtype: str) -> int:
    least, greatest = ROWS[dtype].range or (0, 0)
    return draw.choice((0, least, greatest)) if draw.random() < END_SHARE else draw.randint(least, greatest)


def _steps(draw: random.Random) -> Iterator[str]:
    """Draw the steps of an epilogue."""
    for name in draw.sample(sorted(STEPS), draw.choices((1, 2, 3), (4, 3, 1))[0]):
        numbers = sorted(draw.choice((0, 0.1, 0.5, 1, 3, 6, -1, -0.25)) for _ in STEPS[name])
        yield f"{name}({','.join(map(str, numbers))})" if numbers else name


@dataclass(frozen=True)
class Axis:
    """A spatial axis of the convolution whose data are `x` long; of a transposed one, whose output is."""

    x: int
    k: int
    s: int
    d: int
    begin: int
    end: int
    more: int = 0  # elements past the natural end of a transposed convolution's output


def small(draw: random.Random, fields: dict[str, Any]) -> Problem | None:
    """Draw any small problem; None if it became too large."""
    rank = draw.choices((1, 2, 3), (3, 5, 2))[0]
    axes = [_small_axis(draw, rank) for _ in range(rank)]
    if draw.random() < 0.3:
        axes = [axes[0]] * rank
    if draw.random() < PATCH_SHARE:
        axes = [Axis(axis.x, axis.k, max(axis.k, axis.s), 1, 0, 0) for axis in axes]
    groups, inputs, outputs = _small_channels(draw)
    batch = draw.choices(range(1, 10), (40, 20, 10, 5, 5, 3, 3, 3, 3))[0]
    drawn = assemble(draw.choice(OPS), batch, groups, inputs, outputs, axes, fields)
    if drawn is not None and draw.random() < EDGE_SHARE:
        drawn = _empty(draw, drawn)
    return drawn if drawn is not None and _fits(drawn, SMALL_FLOPS, SMALL_BYTES) else None


def _small_axis(draw: random.Random, rank: int) -> Axis:
    most = {1: 80, 2: 40, 3: 16}[rank]
    x = draw.choices((1, draw.randint(1, 9), draw.randint(1, most)), (1, 5, 4))[0]
    k = draw.choices((1, 3, draw.randint(2, 5), draw.randint(1, 16)), (3, 3, 4, 1))[0]
    s = draw.choices((1, 2, draw.randint(2, 4), draw.randint(1, 8)), (4, 2, 3, 1))[0]
    # What a tap meets depends on the factors that strides and dilations share.
    d = draw.choices((1, s, draw.randint(2, 4), draw.randint(1, 18)), (5, 2, 3, 1))[0]
    return Axis(x, k, s, d, *_pads(draw, k, d), draw.choice((0, 0, 0, 1, 2)))


def _pads(draw: random.Random, k: int, d: int) -> tuple[int, int]:
    span = d * (k - 1) + 1
    same = (span - 1) // 2, span // 2
    any_pads = draw.randint(0, span + 2), draw.randint(0, span + 2)
    few = draw.randint(0, 4), draw.randint(0, 4)
    return draw.choices(((0, 0), same, same[::-1], any_pads, few), (3, 3, 1, 2, 2))[0]


def _small_channels(draw: random.Random) -> tuple[int, int, int]:
    """Return groups, and channels of data and output in each."""

    def channels(most: int) -> int:
        return draw.choice((draw.choice(smooth(most)), draw.randint(1, min(most, 40))))

    kind = draw.choices(("dense", "grouped", "depthwise"), (6, 3, 2))[0]
    if kind == "dense":
        return 1, channels(192), channels(224)
    if kind == "grouped":
        groups = draw.choice(smooth(64)[1:])
        return groups, channels(max(96 // groups, 1)), channels(max(96 // groups, 1))
    return draw.choice((draw.choice(smooth(160)), draw.randint(2, 70))), 1, draw.choices((1, 2, 3, 4), (6, 2, 1, 1))[0]


def layer(draw: random.Random, fields: dict[str, Any]) -> Problem | None:
    """Draw a problem of a layer's size; None if it became too large, or too small."""
    rank = draw.choices((1, 2, 3), (2, 6, 1))[0]
    most = {1: 8000, 2: 224, 3: 48}[rank]
    extent = round(most ** draw.uniform(0.3, 1))
    k = draw.choices((1, 3, draw.randint(2, 7)), (4, 5, 2))[0]
    s, d = draw.choices(((1, 1), (2, 1), (1, draw.randint(2, 12)), (draw.randint(2, 4), 1)), (5, 3, 2, 1))[0]
    axis = Axis(extent, k, s, d, *_pads(draw, k, d))
    groups = draw.choices((1, draw.choice(smooth(64)[1:]), 0), (6, 2, 2))[0]
    inputs, outputs = (draw.choice([c for c in smooth(1536) if c >= 8]) for _ in range(2))
    if groups == 0:
        groups, inputs, outputs = inputs, 1, draw.choice((1, 1, 2))
    else:
        inputs, outputs = max(inputs // groups, 1), max(outputs // groups, 1)
    batch = draw.choices((1, 2, 8), (6, 1, 1))[0]
    drawn = assemble(draw.choice(OPS), batch, groups, inputs, outputs, [axis] * rank, fields)
    return drawn if drawn is not None and drawn.flops > SMALL_FLOPS and _fits(drawn, LAYER_FLOPS, LAYER_BYTES) else None


def real_layer(draw: random.Random, fields: dict[str, Any]) -> Problem | None:
    """Draw a layer of a network; None if it became too large."""
    drawn = draw.choice(draw.choice(networks())).with_(batch=draw.choice((1, 1, 1, 2)), **fields)
    return drawn if _fits(drawn, LAYER_FLOPS, LAYER_BYTES) else None


@cache
def networks() -> tuple[tuple[Problem, ...], ...]:
    """Return the layers of each network: `LAYERS`, the suites of benchmarks, and ONNX's own models where it is there.

    Those that take too long have smaller extents if they are of `LAYERS`, and are left out if not.
    """
    suites = sorted((Path(__file__).parents[2] / "benchmarks" / "suites").glob("*.toml"))
    models: list[Path] = []
    if spec := find_spec("onnx"):
        models = sorted((Path(spec.origin or "").parent / "backend/test/data/light").glob("*.onnx"))
    read = [tuple(_small_enough(read_source(str(path)))) for path in (*suites, *models)]
    return (*(tuple(map(_layer_problem, layers)) for layers in LAYERS.values()), *read)


def _small_enough(problems: list[Problem]) -> Iterator[Problem]:
    for each in problems:
        if _fits(each, LAYER_FLOPS, LAYER_BYTES):
            yield each


def _layer_problem(layer: Layer) -> Problem:
    """Return a layer as a problem, of the largest extents that fit."""
    sizes = zip(layer.extents, layer.kernel, strict=True)
    axes = [Axis(x, k, layer.stride, layer.dilation, *layer.pads(x, k)) for x, k in sizes]
    op, groups = ("convolution_backprop_data" if layer.transposed else "convolution"), layer.groups
    made = assemble(op, 1, groups, layer.inputs // groups, layer.outputs // groups, axes, {})
    assert made is not None, layer
    return made if _fits(made, LAYER_FLOPS, LAYER_BYTES) else _layer_problem(layer.halved())


def assemble(
    op: str, batch: int, groups: int, inputs: int, outputs: int, axes: Sequence[Axis], fields: dict[str, Any]
) -> Problem | None:
    """Return the problem of these axes, with `inputs` and `outputs` channels in each group; None if there is none."""
    spans = [a.d * (a.k - 1) + 1 for a in axes]
    if op == "convolution":
        if any(a.begin + a.end + a.x < span for a, span in zip(axes, spans, strict=True)):
            return None
        y = [(a.begin + a.end + a.x - span) // a.s + 1 for a, span in zip(axes, spans, strict=True)]
        ends = [a.end for a in axes]
    else:
        whole = [a.s * (a.x - 1) + span - a.begin for a, span in zip(axes, spans, strict=True)]
        y = [each - a.end + a.more for a, each in zip(axes, whole, strict=True)]
        if min(y) < 1 or min(whole) < 1:
            return None
        ends = [max(each - length, 0) for each, length in zip(whole, y, strict=True)]
    return Problem(
        op=op,  # type: ignore[arg-type]
        batch=batch,
        in_channels=groups * inputs,
        in_spatial=tuple(a.x for a in axes),
        out_channels=groups * outputs,
        out_spatial=tuple(y),
        kernel=tuple(a.k for a in axes),
        strides=tuple(a.s for a in axes),
        dilations=tuple(a.d for a in axes),
        pads_begin=tuple(a.begin for a in axes),
        pads_end=tuple(ends),
        groups=groups,
        **fields,
    )


def _empty(draw: random.Random, drawn: Problem) -> Problem:
    """Return a problem whose output is empty, or does not depend on data."""
    field = draw.choice(("batch", "in_channels", "out_channels"))
    return drawn.with_(**{field: 0})


def _fits(drawn: Problem, flops: int, nbytes: int) -> bool:
    full = sum(map(prod, (drawn.data_shape, drawn.filter_shape, drawn.output_shape))) * 4
    padded = prod(x + b + e for x, b, e in zip(drawn.in_spatial, drawn.pads_begin, drawn.pads_end, strict=True))
    return drawn.flops <= flops and full <= nbytes and 4 * padded * drawn.batch * drawn.in_channels <= 2 * nbytes
