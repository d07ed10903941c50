"""PyTorch's operators, as the texts of random calls."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import nn

from .draw import Draw, Operator

_Text = str | None


def _real(value: Any) -> bool:
    return bool(value.is_floating_point())


def _spatial(state: Draw, value: Any) -> int:
    """Return how many axes of a value are a plane's: its channels come before, and maybe a batch."""
    ranks = [value.ndim - lead for lead in (1, 2) if 1 <= value.ndim - lead <= 3]
    return state.random.choice(ranks) if ranks and _real(value) else 0


def convolution(state: Draw, name: str, value: Any) -> _Text:
    """Convolutions, of a batch or one image."""
    rank, pick = _spatial(state, value), state.random.choice
    if not rank:
        return None
    channels = value.shape[-rank - 1]
    groups = pick([each for each in (1, 1, 2, 3, channels) if channels % each == 0])
    taps = [pick([1, 2, 3, 3, 5]) for _ in range(rank)]
    steps = [pick([1, 1, 2, 3]) for _ in range(rank)]
    mode = pick(["zeros", "zeros", "zeros", "reflect", "replicate", "circular"])
    padding: Any = pick([0, 1, [pick([0, 1, 2]) for _ in range(rank)], "same", "valid"])
    if padding == "same":
        steps = [1] * rank
    kind = getattr(nn, f"Conv{rank}d")
    try:
        made = kind(channels, groups * pick([1, 2, 3, 4]), taps, steps, padding, pick([1, 1, 1, 2]), groups, pick([True, False]), mode)  # fmt: skip
    except ValueError:
        return None
    return f"{state.module(made)}({name})"


def transposed(state: Draw, name: str, value: Any) -> _Text:
    """Transposed convolutions."""
    rank, pick = _spatial(state, value), state.random.choice
    if not rank:
        return None
    channels = value.shape[-rank - 1]
    groups = pick([each for each in (1, 1, 2, channels) if channels % each == 0])
    steps = [pick([1, 2, 3]) for _ in range(rank)]
    more = [pick([0, step - 1]) for step in steps]
    kind = getattr(nn, f"ConvTranspose{rank}d")
    made = kind(channels, groups * pick([1, 2, 3]), [pick([1, 2, 3, 4]) for _ in range(rank)], steps, pick([0, 1]), more, groups,
                pick([True, False]), pick([1, 1, 2]))  # fmt: skip
    return f"{state.module(made)}({name})"


def pool(state: Draw, name: str, value: Any) -> _Text:
    """Pools: greatest, mean, power, adaptive, with places."""
    rank, pick = _spatial(state, value), state.random.choice
    if not rank:
        return None
    taps, steps = ([pick([1, 2, 2, 3]) for _ in range(rank)] for _ in range(2))
    pads = [pick([0, tap // 2]) for tap in taps]
    ceil, sizes = pick([True, False]), [pick([1, 2, 3, 5, None]) for _ in range(rank)]
    kind = pick(
        ["max", "max", "avg", "avg", "lp", "adaptive_avg", "adaptive_max", "places", "adaptive_places", "divided"]
    )
    if kind == "max":
        return f"F.max_pool{rank}d({name}, {taps}, {steps}, {pads}, {pick([1, 1, 2])}, {ceil})"
    if kind == "avg":
        return f"F.avg_pool{rank}d({name}, {taps}, {steps}, {pads}, {ceil}, {pick([True, False])})"
    if kind == "divided":
        return f"F.avg_pool{rank}d({name}, {taps}, {steps}, {pads}, {ceil}, True, {pick([3, 7])})" if rank > 1 else None
    if kind == "lp":
        return f"F.lp_pool{rank}d({name}.abs() + 0.1, {pick([1, 2])}, {taps}, {steps}, {ceil})"
    if kind == "places":
        return f"F.max_pool{rank}d({name}, {taps}, {steps}, {pads}, 1, {ceil}, return_indices=True)[1]"
    if kind == "adaptive_places":
        return f"F.adaptive_max_pool{rank}d({name}, {sizes}, return_indices=True)[1]"
    return f"F.{kind}_pool{rank}d({name}, {sizes})"


def reduction(state: Draw, name: str, value: Any) -> _Text:
    """Reductions along some axes."""
    pick = state.random.choice
    if not _real(value) or not value.ndim:
        return None
    axis, keep = state.axis(value.ndim), pick([True, False])
    axes = tuple(state.random.sample(range(value.ndim), state.random.randint(1, value.ndim)))
    some = pick([axis, axes])
    return pick([
        f"{name}.sum({some}, {keep})", f"{name}.mean({some}, {keep})", f"{name}.amax({some}, {keep})",
        f"{name}.amin({some}, {keep})", f"{name}.max({axis}, {keep})[{pick([0, 1])}]", f"{name}.min({axis}, {keep})[0]",
        f"{name}.argmax({axis}, {keep})", f"{name}.argmin({axis})", f"{name}.argmax()", f"{name}.var({some}, keepdim={keep}, correction=0)",
        f"{name}.std({some}, keepdim={keep}, correction=0)", f"{name}.logsumexp({some}, {keep})", f"{name}.norm(dim={some}, keepdim={keep})",
        f"torch.linalg.vector_norm({name}, {pick([1, 2, 3, float('inf')])!r}, {some}, {keep})".replace("inf", "float('inf')"),
        f"({name} > 0).any({some})", f"({name} > -1).all({axis}, {keep})", f"{name}.cumsum({axis})", f"{name}.cummax({axis})[{pick([0, 1])}]",
        f"{name}.cummin({axis})[0]", f"{name}.logcumsumexp({axis})", f"(0.1 * {name}).prod({axis}, {keep})", f"{name}.median({axis}, {keep})[0]",
        f"torch.count_nonzero({name} > 0.1, {axis})", f"torch.var_mean({name}, {some}, correction=0, keepdim={keep})[1]", f"{name}.sum()", f"{name}.max()",
        f"{name}.std({some}, keepdim={keep})", f"{name}.nansum({some})", f"torch.aminmax({name}, dim={axis})[1]",
        f"{name}.kthvalue(1, {axis}, {keep})[0]", f"{name}.mean({some}, dtype=torch.float32)",
    ])  # fmt: skip


def view(state: Draw, name: str, value: Any) -> _Text:
    """Views and moves, of any type."""
    pick, rank = state.random.choice, value.ndim
    if not rank:
        return f"{name}.{pick(['view(1)', 'expand(3)', 'unsqueeze(0)', 'reshape(1, 1)'])}"
    axis, shape = state.axis(rank), tuple(value.shape)
    extent, order = shape[axis], state.random.sample(range(rank), rank)
    begin = pick(range(extent))
    end = pick(range(begin + 1, extent + 1))
    wide = tuple(pick([size, -1]) if size > 1 else pick([3, 1]) for size in shape)
    cut = ", ".join(pick([":", "::2", f"{-pick(range(1, size + 1))}:", "None", "..."]) if pick([True, False]) else str(pick(range(-size, size))) for size in shape)  # fmt: skip
    return pick([
        f"{name}.reshape({', '.join(map(str, state.random.sample(shape, rank)))})", f"{name}.flatten({pick(range(rank))})", f"{name}.permute({order})",
        f"{name}.transpose({axis}, {state.axis(rank)})", f"{name}.unsqueeze({state.axis(rank + 1)})", f"{name}.squeeze()", f"{name}.squeeze({axis})",
        f"{name}.narrow({axis}, {begin}, {end - begin})", f"{name}.select({axis}, {begin})", f"{name}[{cut}]", f"{name}.movedim({axis}, {state.axis(rank)})",
        f"{name}.expand({wide})", f"{name}.flip({axis})", f"{name}.roll({pick([1, -2, 5])}, {axis})", f"{name}.repeat({tuple(pick([1, 1, 2]) for _ in shape)})",
        f"{name}.repeat_interleave(2, {axis})", f"{name}.chunk(2, {axis})[-1]", f"{name}.split({pick([1, 2, 3])}, {axis})[0]", f"{name}.unbind({axis})[{pick([0, -1])}]",
        f"{name}.contiguous()", f"{name}.unfold({axis}, {min(2, extent)}, {pick([1, 2])})", f"{name}.mT" if rank > 1 else f"{name}.view(-1)",
        f"{name}.rot90(1, ({order[0]}, {order[-1]}))", f"{name}.tensor_split(2, {axis})[0]", f"{name}.diagonal(0, {order[0]}, {order[-1]})",
        f"{name}.as_strided(({extent},), ({pick([0, 1])},))", f"{name}.unflatten({axis}, (1, -1))", f"{name}.tril()", f"{name}.triu({pick([-1, 1])})",
        f"torch.atleast_3d({name})", f"{name}.swapaxes({axis}, 0)", f"{name}.ravel()", f"torch.diag_embed({name})", f"{name}.tile(2)",
        f"F.pixel_shuffle({name}, 2)", f"F.pixel_unshuffle({name}, {pick([2, 3])})", f"F.channel_shuffle({name}, {pick([2, 3])})",
    ])  # fmt: skip


def index(state: Draw, name: str, value: Any) -> _Text:
    """Indexing by known and computed positions, gathers, and what writes."""
    pick, rank = state.random.choice, value.ndim
    if not rank:
        return None
    axis = state.axis(rank)
    extent = value.shape[axis]
    at = state.tensor(like=torch.randint(-extent, extent, (4,)))
    from_start = state.tensor(like=torch.randint(0, extent, (4,)))
    places = state.tensor(like=torch.randint(0, extent, value.shape))
    order = state.tensor(like=torch.rand(value.shape).argsort(axis))
    lead, mask = ":, " * (axis % rank), state.tensor(like=torch.rand(value.shape) > 0.5)
    number = pick(["0.5", "-1", "2"]) if _real(value) else "1"
    copied = f"{name}.clone()"
    return pick([
        f"{name}[{lead}{at}]", f"{name}.index_select({axis}, {from_start})", f"{name}.gather({axis}, {places})", f"torch.take_along_dim({name}, {places}, {axis})",
        f"{name}[{at}[:2] % {value.shape[0]}, ..., {at}[2:] % {value.shape[-1]}]", f"{name}[..., {at}[:, None] % {value.shape[-1]}]",
        f"{name}.masked_fill({mask}, {number})", f"torch.where({mask}, {name}, {number})", f"{name}.scatter({axis}, {order}, {name})",
        f"{name}.scatter_add({axis}, {places}, {name})", f"{name}.index_add({axis}, {from_start}[:1], {name}.narrow({axis}, 0, 1))",
        f"{copied}.index_fill_({axis}, {from_start}, {number})", f"{name}.sort({axis})[0]", f"{name}.topk(1, {axis})[0]", f"{name}.argsort({axis}, stable=True)",
        f"{copied}.index_copy_({axis}, {from_start}[:1], {name}.narrow({axis}, 0, 1))", f"{copied}.select_scatter({name}.select({axis}, 0), {axis}, -1)",
        f"{copied}.narrow({axis}, 0, 1).mul_({number})", f"{copied}.add_({number})", f"{name}.slice_scatter({name}.narrow({axis}, 0, 1), {axis}, 0, 1)",
        f"{copied}.masked_scatter_({mask}, {name})", f"{name}.take({from_start})",
    ])  # fmt: skip


def arrangement(state: Draw, name: str, value: Any) -> _Text:
    """Several values as one."""
    pick, rank = state.random.choice, value.ndim
    if not rank:
        return f"torch.stack([{name}, {name} * 2])"
    axis = state.axis(rank)
    other = state.other(lambda each: each.shape == value.shape) or name
    return pick([
        f"torch.cat([{name}, {other}], {axis})", f"torch.stack([{name}, {other}], {state.axis(rank + 1)})", f"torch.cat([{name}, {name}.flip({axis}), {other}], {axis})",
        f"torch.cat([{other}.narrow({axis}, 0, 1), {name}], {axis})", f"torch.hstack([{name}, {other}])", f"torch.dstack([{name}, {other}])",
        f"torch.cat({name}.split(2, {axis})[::-1], {axis})", f"torch.cat([{name}.new_zeros((0,)), {name}.ravel()])",
    ])  # fmt: skip


def padding(state: Draw, name: str, value: Any) -> _Text:
    """Padding modes, and pads below 0."""
    rank, pick = value.ndim, state.random.choice
    if not rank or not _real(value):
        return None
    count = state.random.randint(1, min(rank, 3))
    pads = [pick([0, 1, 2, -1]) for _ in range(2 * count)]
    mode = pick(["constant", "reflect", "replicate", "circular"])
    if mode == "circular":  # of pads below 0 PyTorch's own has memory that was not set
        pads = [max(each, 0) for each in pads]
    more = f", {pick([0, 1.5, -2])}" if mode == "constant" else ""
    return f"F.pad({name}, {pads}, '{mode}'{more})"


def resize(state: Draw, name: str, value: Any) -> _Text:
    """Interpolations of all modes, by sizes and by scales."""
    rank, pick = value.ndim - 2, state.random.choice
    if rank not in (1, 2, 3) or not _real(value):
        return None
    modes = [
        "nearest",
        "nearest-exact",
        ("linear", "bilinear", "trilinear")[rank - 1],
        *(["bicubic", "area"] if rank == 2 else ["area"]),
    ]
    mode = pick(modes)
    aligned = f", align_corners={pick([True, False])}" if "linear" in mode or "cubic" in mode else ""
    smooth = ", antialias=True" if rank == 2 and mode in ("bilinear", "bicubic") and pick([True, False, False]) else ""
    how = pick(
        [
            f"size={[pick([1, 3, 5, 8]) for _ in range(rank)]}",
            f"scale_factor={pick([0.5, 1.5, 2, 1.7, 3])}",
            f"scale_factor={[pick([1, 2, 0.7]) for _ in range(rank)]}",
        ]
    )
    again = ", recompute_scale_factor=True" if "scale" in how and pick([True, False, False]) else ""
    return f"F.interpolate({name}, {how}, mode='{mode}'{aligned}{smooth}{again})"


def normalization(state: Draw, name: str, value: Any) -> _Text:
    """Normalizations."""
    pick, rank = state.random.choice, value.ndim
    if rank < 2 or not _real(value):
        return None
    channels, last = value.shape[1], pick(range(1, rank))
    made: list[Any] = [
        nn.LayerNorm(value.shape[last:], elementwise_affine=pick([True, False])),
        nn.RMSNorm(value.shape[-1:], eps=1e-5),
    ]
    made.append(nn.GroupNorm(pick([each for each in (1, 2, 3, channels) if channels % each == 0]), channels))
    if rank < 6:
        norm = getattr(nn, f"BatchNorm{max(rank - 2, 1)}d")(channels)
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        made.append(norm)
    if 2 < rank < 6:
        made.append(getattr(nn, f"InstanceNorm{rank - 2}d")(channels, affine=pick([True, False])))
        made.append(nn.LocalResponseNorm(pick([2, 3])))
    one = pick([*made, None])
    axis = state.axis(rank)
    if one is None:
        return pick([f"F.normalize({name}, dim={axis})", f"F.softmax({name}, {axis})", f"F.log_softmax({name}, {axis})", f"F.normalize({name}, 1, {axis})",
                     f"F.softmin({name}, {axis})", f"F.softmax({name}, {axis}, dtype=torch.float32)"])  # fmt: skip
    for parameter in one.parameters():
        nn.init.uniform_(parameter, -1, 1)
    return f"{state.module(one)}({name})"


_ALONE = (
    "relu", "relu6", "silu", "gelu", "hardswish", "hardsigmoid", "hardtanh", "leaky_relu", "elu", "selu", "celu", "mish", "softplus",
    "softsign", "tanhshrink", "logsigmoid", "sigmoid", "tanh",
)  # fmt: skip
_FUNCTIONS = (
    "exp", "sin", "cos", "tan", "atan", "asinh", "erf", "abs", "neg", "square", "sqrt", "rsqrt", "reciprocal", "log", "log1p", "expm1",
    "log2", "log10", "sinh", "cosh", "erfc", "sigmoid", "sign", "exp2", "nan_to_num", "isnan", "isfinite", "logical_not", "sgn", "deg2rad",
    "sinc", "erfinv", "lgamma", "digamma", "i0", "square", "special.entr", "special.expit", "special.log_ndtr", "special.ndtr", "acosh",
)  # fmt: skip


def activation(state: Draw, name: str, value: Any) -> _Text:
    """Functions of single numbers."""
    pick = state.random.choice
    if not _real(value):
        return pick([f"{name}.float()", f"{name} + 1", f"{name} * 0.5", f"{name} == 0", f"{name}.to(torch.int32)", f"{name} // 2", f"-{name}", f"{name} % 3", f"{name} ** 2",
                     f"~{name}", f"{name} & 1", f"{name} / 3", f"{name}.abs()", f"{name}.clamp(0, 2)", f"{name}.bool()", f"1 - {name}", f"{name} << 1", f"F.one_hot({name} % 5, 5)",
                     f"{name}.sum(-1)", f"{name}.cumsum(0)", f"{name}.amax()", f"{name}.max(0)[0]"])  # fmt: skip
    within = f"{name}.abs().clamp(0.1, 5)"
    return pick([
        f"F.{pick(_ALONE)}({name})", f"torch.{pick(_FUNCTIONS)}({within})", f"F.gelu({name}, approximate='tanh')", f"F.leaky_relu({name}, {pick([0.1, 0, -0.2, 1.5])})",
        f"F.hardtanh({name}, -0.5, {pick([0.5, 6])})", f"{name}.clamp({pick(['0', '-0.5', 'None'])}, 1)", f"F.glu({name}, {state.axis(value.ndim) if value.ndim else 0})",
        f"F.threshold({name}, 0.1, -3)", f"F.softshrink({name})", f"F.hardshrink({name})", f"{within} ** {pick([2, 3, 0.5, -1, 1.7])}", f"F.softplus({name}, 2, 3)",
        f"F.prelu({name}, {state.tensor(value.shape[1] if value.ndim > 1 else 1)})", f"torch.atan2({name}, {within})", f"F.elu({name}, 0.7)", f"F.rrelu({name})", f"F.dropout({name}, 0.5, False)",
    ])  # fmt: skip


def arithmetic(state: Draw, name: str, value: Any) -> _Text:
    """Two values, broadcast."""
    pick = state.random.choice
    if not _real(value):
        return None
    shape = [size if pick([True, False]) else 1 for size in value.shape][pick([0, 0, *range(value.ndim)]) :]
    right = (
        pick(
            [
                state.other(lambda each: _real(each) and each.shape == value.shape),
                state.tensor(*shape),
                pick(["0.5", "2", "-1", "3"]),
            ]
        )
        or "1.5"
    )
    third = state.tensor(*value.shape)
    return pick([
        f"{name} + {right}", f"{name} - {right}", f"{name} * {right}", f"{right} - {name}", f"{name} / ({third}.abs() + 1)", f"torch.maximum({name}, {third})", f"torch.minimum({name}, {third})",
        f"torch.where({third} > 0, {name}, {right})", f"torch.lerp({name}, {third}, 0.3)", f"torch.addcmul({name}, {third}, {third}, value=0.5)", f"torch.add({name}, {third}, alpha=2)",
        f"{name} > {third}", f"{name} <= {right}", f"torch.fmax({name}, {third})", f"torch.hypot({name}, {third})", f"torch.remainder({third}.abs(), {name}.abs() * 0 + 3)", f"torch.logaddexp({name}, {third})",
        f"F.silu({name}) * {right}", f"torch.addcdiv({name}, {third}, {third}.abs() + 1)", f"torch.copysign({name}, {third})", f"F.mse_loss({name}, {third})", f"torch.rsub({name}, {third})", f"torch.clamp({name}, {third}, {third} + 1)",
    ])  # fmt: skip


def product(state: Draw, name: str, value: Any) -> _Text:
    """Products of matrices, einsums, attention, layers of weights."""
    pick, rank = state.random.choice, value.ndim
    if not _real(value) or not rank:
        return None
    last, wide = value.shape[-1], pick([1, 3, 8])
    choices = [f"{state.module(nn.Linear(last, wide, pick([True, False])))}({name})", f"{name} @ {state.tensor(last, wide)}", f"{name} @ {state.tensor(last)}",
               f"F.linear({name}, {state.tensor(wide, last)})", f"torch.tensordot({name}, {state.tensor(last, wide)}, 1)", f"torch.einsum('...i,ij->...j', {name}, {state.tensor(last, wide)})"]  # fmt: skip
    if rank > 1:
        choices += [f"{name} @ {name}.mT", f"F.scaled_dot_product_attention({name}, {name}, {name})", f"torch.einsum('...ij,...kj->...ik', {name}, {name})",
                    f"F.scaled_dot_product_attention({name}, {name}, {name}, is_causal=True)", f"F.scaled_dot_product_attention({name}, {name} * 2, {name}, {state.tensor(value.shape[-2], value.shape[-2])})",
                    f"F.bilinear({name}, {name}, {state.tensor(2, last, last)})", f"torch.cdist({name}, {name} + 1)", f"{state.tensor(wide, value.shape[-2])} @ {name}"]  # fmt: skip
    if rank == 3:
        heads = pick([each for each in (1, 2, 3) if last % each == 0])
        attention, layer = (
            nn.MultiheadAttention(last, heads, batch_first=pick([True, False])),
            nn.TransformerEncoderLayer(last, heads, 8, batch_first=True),
        )
        choices += [f"{state.module(attention)}({name}, {name}, {name}, need_weights=False)[0]", f"{state.module(layer)}({name})", f"torch.bmm({name}, {name}.transpose(1, 2))",
                    f"torch.baddbmm({state.tensor(1)}, {name}, {name}.mT)", f"{state.module(nn.GRU(last, 4, batch_first=True))}({name})[0]", f"{state.module(nn.LSTM(last, 3, bidirectional=True))}({name})[0]",
                    f"{state.module(attention)}({name}, {name}, {name})[1]"]  # fmt: skip
    if rank == 2:
        choices += [
            f"torch.addmm({state.tensor(wide)}, {name}, {state.tensor(last, wide)}, alpha=0.5)",
            f"torch.outer({name}[0], {name}[-1])",
            f"torch.mv({name}, {state.tensor(last)})",
            f"{name}.t()",
        ]
    if rank == 4:
        choices += [f"F.unfold({name}, 2, padding={pick([0, 1])})", f"F.grid_sample({name}, {state.tensor(value.shape[0], 3, 4, 2)}, mode='{pick(['bilinear', 'nearest'])}', padding_mode='{pick(['zeros', 'border'])}', align_corners=False)",
                    f"F.fold(F.unfold({name}, 2), {tuple(value.shape[2:])}, 2)"]  # fmt: skip
    if prod(value.shape) < 200:
        choices.append(f"torch.meshgrid({name}.ravel()[:5], {name}.ravel()[:3], indexing='ij')[{pick([0, 1])}]")
    return pick(choices)


OPERATORS: dict[str, Operator] = {
    each.__name__: each
    for each in (convolution, transposed, pool, reduction, view, index, arrangement, padding, resize, normalization, activation, arithmetic, product)
}  # fmt: skip
