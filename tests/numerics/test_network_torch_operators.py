"""ATen's operators read into Relax, compiled, and compared with PyTorch: types, axes, broadcasts, NaN and infinities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from tvmconv.network.compile import build  # noqa: E402
from tvmconv.network.read.torch.reader import read_torch  # noqa: E402
from tvmconv.runtime.networks.network import load_network  # noqa: E402

F = nn.functional
NAN, INF = float("nan"), float("inf")
# Of the relative L2 error of what is finite.
ALLOWED = {torch.float32: 2e-6, torch.bfloat16: 2e-2}


class Every(nn.Module):
    """All functions of a table, each with its own tensors: compiled together, which takes seconds where each alone takes one."""

    def __init__(self, functions: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, tensors: Any) -> Any:
        # Copies: some work in place.
        return {
            name: list_of(function(*map(torch.clone, tensors[name]))) for name, (function, _) in self.functions.items()
        }


def list_of(answer: Any) -> list[Any]:
    return list(answer) if isinstance(answer, (tuple, list)) else [answer]


def wrong(functions: Any, dtype: Any, folder: Path) -> list[str]:
    """Return the wrong results of reading and compiling a table."""
    given = {name: [each.to(dtype if each.is_floating_point() else each.dtype, copy=True) for each in tensors] for name, (_, tensors) in functions.items()}  # fmt: skip
    network = Every(functions)
    with torch.no_grad():
        expected = [(name, each) for name, answers in network(given).items() for each in answers]
        program = torch.export.export(network, (given,), strict=False)
    build(read_torch(program), folder / "network.so", layout="NCX")
    compiled = load_network(folder / "network.so")
    flat = [each for tensors in given.values() for each in tensors]
    arrays = {
        tensor.name: (each.float().numpy() if each.is_floating_point() else each.numpy()).astype(tensor.numpy)
        for tensor, each in zip(compiled.inputs, flat, strict=True)
    }
    faults = []
    for (name, right), answer in zip(expected, compiled(**arrays).values(), strict=True):
        if (fault := difference(answer, right, ALLOWED[dtype])) is not None:
            faults.append(f"{name}: {fault}")
    return faults


def difference(answer: Any, right: Any, allowed: float) -> str | None:
    """Return how an answer differs."""
    if str(answer.dtype) != str(right.dtype).removeprefix("torch.") or answer.shape != right.shape:
        return f"{answer.dtype} {answer.shape}, right is {right.dtype} {tuple(right.shape)}"
    found, numbers = answer.astype(np.float64), right.double().numpy()
    finite = np.isfinite(numbers)
    if not np.array_equal(found[~finite], numbers[~finite], equal_nan=True):
        return f"{found[~finite]} are {numbers[~finite]}"
    error = np.linalg.norm(found[finite] - numbers[finite])
    return None if error <= allowed * np.linalg.norm(numbers[finite]) else f"error {error}"


def put(data: Any, at: Any, values: Any) -> Any:
    """Return a tensor with values written at positions, or by a mask."""
    data[at] = values
    return data


def tables() -> dict[str, dict[str, tuple[Callable[..., Any], tuple[Any, ...]]]]:
    """Return functions and what they take, by name, in groups that are compiled together."""
    torch.manual_seed(0)
    i, b = torch.randint(-5, 9, (3, 4)), torch.rand(3, 4) > 0.5
    s, p = torch.randn(3, 4), torch.rand(3, 4) + 0.1
    s[0, 0], s[1, 1], s[2, 2] = NAN, INF, -INF
    small = torch.tensor([1e-7, -1e-7, 0.3, -0.4, 2.0, -3.0, 20.0, 0.0, INF, -INF, NAN, -1 + 1e-6])
    x, x1, x3 = torch.randn(2, 4, 7, 9), torch.randn(2, 4, 11), torch.randn(1, 2, 4, 5, 6)
    r, c, w = torch.randn, torch.randn(3, 4, 2), torch.hann_window(16)
    some = torch.tensor([[1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 0]]) > 0
    return {
        "arithmetic": {
            "integers and a fraction": (lambda a: a + 0.5, (i,)),
            "true division of integers": (lambda a: a / 2, (i,)),
            "alpha": (lambda a, c: torch.add(a, c, alpha=2.5), (s, p)),
            "alpha of integers": (lambda a, c: torch.sub(a, c, alpha=2), (i, i)),
            "reversed difference": (lambda a: 2 - a, (i,)),
            "rsub": (lambda a: torch.rsub(a, 1.5, alpha=2), (s,)),
            "mixed types": (lambda a, c: a * c, (i, s)),
            "truth times numbers": (lambda a, c: a * c, (b, s)),
            "truth plus truth": (lambda a, c: a + c, (b, b)),
            "broadcast": (lambda a, c: a[:, None] * c[0], (s, p)),
            "floor division": (lambda a: a // 2, (i,)),
            "floor division of halves": (lambda a: torch.div(a, 2, rounding_mode="floor"), (p * 9,)),
            "truncated division": (lambda a: torch.div(a, 3, rounding_mode="trunc"), (i,)),
            "truncated division of numbers": (lambda a: torch.div(a, 0.3, rounding_mode="trunc"), (p,)),
            "remainder": (lambda a: a % 3, (i,)),
            "remainder of numbers": (lambda a, c: torch.remainder(a, c), (p * 9 - 4, p)),
            "square of integers": (lambda a: a**2, (i,)),
            "power of 0": (lambda a: a**0, (i,)),
            "root": (lambda a: a**0.5, (p,)),
            "negative power": (lambda a: a**-1.0, (s,)),
            "power of a number": (lambda a: 2.0**a, (p,)),
            "power of integers by a fraction": (lambda a: a**2.0, (i,)),
            "comparison with a fraction": (lambda a: a > 0.5, (i,)),
            "comparison of types": (lambda a, c: a <= c, (i, s)),
            "NaN is not itself": (lambda a: a == a, (s,)),
            "root of integers": (lambda a: a.abs().sqrt(), (i,)),
            "exp of integers": (lambda a: a.exp(), (i,)),
            "sigmoid": (lambda a: a.sigmoid(), (s,)),
            "clamp below": (lambda a: a.clamp_min(0.2), (s,)),
            "clamp above": (lambda a: a.clamp_max(0.2), (s,)),
            "clamp integers": (lambda a: a.clamp(-2, 3), (i,)),
            "clamp by tensors": (lambda a, c: torch.clamp(a, c - 1, c), (s, p)),
            "hardtanh": (lambda a: F.hardtanh(a, -0.2, 0.3), (s,)),
            "relu6": (F.relu6, (s,)),
            "slopes of a row": (lambda a: torch.where(a > 0, a, torch.tensor([0.1, 0.2, 0.3, 0.4]) * a), (s[0],)),
            "where with a number": (lambda a, c: torch.where(c, a, 0), (s, b)),
            "where with a fraction": (lambda a, c: torch.where(c, a, 1.5), (i, b)),
            "in place": (lambda a: a.add_(1).mul_(2).relu_(), (s,)),
            "softshrink": (F.softshrink, (s,)),
            "threshold": (lambda a: F.threshold(a, 0.1, 2), (s,)),
            "selu": (F.selu, (s,)),
            "celu": (lambda a: F.celu(a, 0.7), (s,)),
            "hardswish": (F.hardswish, (p,)),
            "addcmul": (lambda a, c: torch.addcmul(a, c, c, value=2), (p, p)),
            "lerp": (lambda a, c: torch.lerp(a, c, 0.3), (p, p)),
        },
        "small numbers": {
            "log1p": (torch.log1p, (small,)),
            "expm1": (torch.expm1, (small,)),
            "softplus": (F.softplus, (small,)),
            "steep softplus": (lambda a: F.softplus(a, 2.5, 1), (s,)),
            "log sigmoid": (F.logsigmoid, (s,)),
            "mish": (F.mish, (s,)),
        },
        "rarer": {
            "fmax, fmin": (lambda a, c, j: (torch.fmax(a, c), torch.fmax(j, j - 1), torch.fmin(c, a)), (s, p, i)),
            "copysign": (torch.copysign, (p, torch.tensor([0.0, -0.0, 2, -3]))),
            "copysign of integers": (lambda a: torch.copysign(a, -0.0), (i,)),
            "sign": (torch.sgn, (s,)),
            "hypotenuse": (torch.hypot, (s, p)),
            "median": (lambda a: a.median(), (x,)),
            "median along": (lambda a: a.median(1)[0], (x,)),
            "median and its place": (lambda a: tuple(a.median(-1, True)), (p,)),
            "median of no numbers": (lambda a: a.median(0)[0], (s,)),
            "median of integers": (lambda a: a.median(1)[0], (i,)),
            "exp2": (torch.exp2, (s,)),
            "greatest in any order": (lambda a: a.topk(3, sorted=False)[0].sum(-1), (p,)),
            "places of the least in any order": (lambda a: a.topk(2, 0, False, False)[1].sort(0)[0], (p,)),
            "search": (lambda a, v: torch.searchsorted(a.sort(-1)[0], v), (p, r(3, 5))),
            "search of others": (lambda a, v: torch.searchsorted(a, v, sorter=a.argsort(-1)), (p, r(3, 5))),
            "search from the right": (lambda a: torch.searchsorted(torch.tensor([1, 2, 2, 4]), a, right=True), (i,)),
            "buckets": (lambda a: torch.bucketize(a, torch.tensor([0.1, 0.3, 0.5])), (p,)),
            "buckets from the right": (lambda a: torch.bucketize(a, torch.tensor([-1, 2, 5]), right=True), (i,)),
            "signs": (torch.signbit, (torch.tensor([0.0, -0.0, 2, -3, NAN, -INF]),)),
            "shifts": (lambda a: (a << 2, a >> 1), (i,)),
            "distances": (lambda a, c: [torch.cdist(a, c, p=order) for order in (1, 2, 3)], (r(2, 3, 4), r(2, 30, 4))),
            "adds along": (lambda a, j, v: a.scatter_add(1, j, v), (r(3, 4), i % 4, r(3, 6))),
            "greatest along": (lambda a, j, v: a.scatter_reduce(0, j, v, "amax"), (s, i % 3, s.flip(0))),
            "least along": (lambda a, j, v: a.scatter_reduce(0, j, v, "amin"), (s, i % 3, s.flip(1))),
            "places of maxima": (lambda a: F.max_pool2d(a, 3, 2, 1, 1, True, True), (x,)),
            "back to them": (lambda a: F.max_unpool2d(*F.max_pool2d(a, 2, return_indices=True), 2), (r(1, 2, 6, 8),)),
            "identities": (lambda a: (a @ torch.eye(300), a @ torch.eye(300, 7, dtype=a.dtype)), (r(2, 300),)),
            "addmv": (lambda a, c, d: torch.addmv(a, c, d, alpha=0.5), (r(3), r(3, 4), r(4))),
            "addbmm": (lambda a, c, d: torch.addbmm(a, c, d, beta=2), (r(3, 5), r(2, 3, 4), r(2, 4, 5))),
        },
        "reductions": {
            "mean": (lambda a: a.mean(-1), (x,)),
            "a sum for each of a row": (lambda a: a.sum(1, keepdim=True).expand(-1, 8).contiguous(), (r(10, 3),)),
            "mean in another type": (lambda a: a.mean((0, -1), keepdim=True, dtype=torch.float32), (i,)),
            "sum of truths": (lambda a: a.sum(), (b,)),
            "sum of integers": (lambda a: a.sum(1), (i,)),
            "amax": (lambda a: a.amax((1, -1)), (s[None],)),
            "amin": (lambda a: a.amin(-1, True), (s,)),
            "max of all": (lambda a: a.max(), (x,)),
            "max along": (lambda a: tuple(a.max(1)), (p,)),
            "min along": (lambda a: tuple(a.min(-1, True)), (p,)),
            "any": (lambda a: a.any(1), (b,)),
            "all of integers": (lambda a: a.all(-1, True), (i,)),
            "any of NaN": (lambda a: a.any(), (s,)),
            "variance": (lambda a: a.var(1), (x,)),
            "variance of the population": (lambda a: a.var((0, 2), unbiased=False, keepdim=True), (x,)),
            "deviation": (lambda a: a.std(-1), (x,)),
            "norm": (lambda a: a.norm(dim=1), (x,)),
            "norm of 1": (lambda a: torch.linalg.vector_norm(a, 1, -1), (x,)),
            "greatest": (lambda a: torch.linalg.vector_norm(a, INF, -1), (x,)),
            "counted": (lambda a: torch.linalg.vector_norm(a, 0, -1), (x,)),
            "norm of 3": (lambda a: torch.linalg.vector_norm(a, 3, (0, 1), True), (x,)),
            "normalize": (lambda a: F.normalize(a, dim=1), (x,)),
            "logsumexp": (lambda a: a.logsumexp(1), (x,)),
        },
        "windows": {
            "adaptive max": (lambda a: F.adaptive_max_pool2d(a, (3, 2)), (x,)),
            "adaptive max to 1": (lambda a: F.adaptive_max_pool2d(a, 1), (x,)),
            "adaptive max of rows": (lambda a: F.adaptive_max_pool1d(a, 3), (x1,)),
            "adaptive mean": (lambda a: F.adaptive_avg_pool2d(a, (3, None)), (x,)),
            "adaptive mean that divides": (lambda a: F.adaptive_avg_pool2d(a, (7, 3)), (x,)),
            "adaptive mean of rows": (lambda a: F.adaptive_avg_pool1d(a, 4), (x1,)),
            "adaptive mean of volumes": (lambda a: F.adaptive_avg_pool3d(a, 2), (x3,)),
            "adaptive mean without a batch": (lambda a: F.adaptive_avg_pool2d(a, 2), (x[0],)),
            "nearest": (lambda a: F.interpolate(a, scale_factor=2), (x,)),
            "nearest by a fraction": (lambda a: F.interpolate(a, scale_factor=1.7), (x,)),
            "nearest to a size": (lambda a: F.interpolate(a, size=(5, 13)), (x,)),
            "nearest of rows": (lambda a: F.interpolate(a, scale_factor=3), (x1,)),
            "nearest of volumes": (lambda a: F.interpolate(a, scale_factor=2), (x3,)),
            "nearest exact": (lambda a: F.interpolate(a, size=(5, 13), mode="nearest-exact"), (x,)),
            "bilinear": (lambda a: F.interpolate(a, scale_factor=2, mode="bilinear"), (x,)),
            "bilinear corners": (lambda a: F.interpolate(a, size=(13, 4), mode="bilinear", align_corners=True), (x,)),
            "bilinear by a fraction": (lambda a: F.interpolate(a, scale_factor=1.3, mode="bilinear"), (x,)),
            "bilinear to a pixel": (lambda a: F.interpolate(a, size=(1, 1), mode="bilinear", align_corners=True), (x,)),
            "linear": (lambda a: F.interpolate(a, scale_factor=2.5, mode="linear"), (x1,)),
            "trilinear": (lambda a: F.interpolate(a, scale_factor=2, mode="trilinear"), (x3,)),
            "bicubic": (lambda a: F.interpolate(a, scale_factor=2, mode="bicubic"), (x,)),
            "bicubic corners": (lambda a: F.interpolate(a, size=(5, 20), mode="bicubic", align_corners=True), (x,)),
            "windows along an axis": (lambda a: a.unfold(-1, 3, 2), (x,)),
            "windows along another": (lambda a: a.unfold(1, 2, 1), (x,)),
            "im2col": (lambda a: F.unfold(a, 2), (x,)),
        },
        "normalizations": {
            "groups": (lambda a: F.group_norm(a, 2), (x,)),
            "groups scaled": (lambda a, w: F.group_norm(a, 2, w, w + 1), (x, r(4))),
            "layers": (lambda a: F.layer_norm(a, (7, 9)), (x,)),
            "layers scaled": (lambda a, w: F.layer_norm(a, (9,), w), (x, r(9))),
            "instances": (lambda a: F.instance_norm(a), (x,)),
            "instances scaled": (lambda a, w: F.instance_norm(a, weight=w, bias=w), (x, r(4))),
            "root mean square": (lambda a: F.rms_norm(a, (9,)), (x,)),
            "local response": (lambda a: F.local_response_norm(a, 3), (x,)),
        },
        "products": {
            "matrices": (lambda a, c: a @ c, (r(3, 5), r(5, 4))),
            "batches": (lambda a, c: a @ c, (r(2, 3, 5), r(2, 5, 4))),
            "a vector right": (lambda a, c: a @ c, (r(3, 5), r(5))),
            "a vector left": (lambda a, c: a @ c, (r(5), r(5, 3))),
            "vectors": (lambda a, c: a @ c, (r(5), r(5))),
            "broadcast batches": (lambda a, c: a @ c, (r(2, 1, 3, 5), r(4, 5, 2))),
            "linear": (lambda a, w, c: F.linear(a, w, c), (r(2, 3, 5), r(4, 5), r(4))),
            "linear of a vector": (lambda a, w: F.linear(a, w), (r(5), r(4, 5))),
            "addmm": (lambda a, c, d: torch.addmm(a, c, d, alpha=0.5, beta=2), (r(4), r(3, 5), r(5, 4))),
            "attention": (lambda a, c: F.scaled_dot_product_attention(a, c, c), (r(2, 3, 7, 8), r(2, 3, 9, 8))),
            "causal": (lambda a: F.scaled_dot_product_attention(a, a, a, is_causal=True), (r(2, 3, 7, 8),)),
            "masked": (lambda a, m: F.scaled_dot_product_attention(a, a, a, m), (r(2, 3, 4, 8), some)),
            "added": (lambda a, m: F.scaled_dot_product_attention(a, a, a, m, scale=0.3), (r(2, 3, 7, 8), r(7, 7))),
            "groups of queries": (
                lambda a, c: F.scaled_dot_product_attention(a, c, c, enable_gqa=True),
                (r(2, 4, 7, 8), r(2, 2, 7, 8)),
            ),
            "einsum": (lambda a, c: torch.einsum("bhij,bkj->bhik", a, c), (r(2, 3, 4, 5), r(2, 6, 5))),
            "einsum of three": (lambda a, c: torch.einsum("nkctv,kvw->nctw", a, c), (r(2, 3, 4, 5, 6), r(3, 6, 7))),
        },
        "writes": {
            "writes where": (lambda a, c: put(a, c, 1.5), (p, b)),
            "writes rows where": (lambda a, c: put(a, c[:, 0], torch.arange(4.0)), (s, b)),
            "writes inner axes where": (lambda a, c: put(a, (slice(None), c), -1), (r(2, 3, 4, 2), b)),
            "writes numbers of another type where": (lambda a, c: put(a, c, 2), (i, b)),
            "writes rows at": (lambda a, j, v: put(a, j, v), (r(6, 4), torch.tensor([3, -1, 0]), r(3, 4))),
            "writes known rows": (lambda a, v: put(a, torch.tensor([3, -1, 3]), v), (r(6, 4), r(3, 4))),
            "writes inner axes": (
                lambda a, v: put(a, (slice(None), torch.tensor([1, 0]), slice(None), 2), v),
                (x, r(2, 2, 7)),
            ),
            "writes neighbours": (
                lambda a, j, v: put(a, (slice(None), slice(None), j, j + 1), v),
                (x, torch.tensor([[1, 0, -2]]), r(1, 3)),
            ),
            "adds at known rows": (
                lambda a, v: torch.ops.aten.index_put(a, [torch.tensor([3, -1, 3])], v, True),
                (r(6, 4), r(3, 4)),
            ),
            "windows added": (lambda a: F.fold(a, (9, 9), 3, stride=2, padding=1), (r(2, 18, 25),)),
            "adds at": (
                lambda a, j, v: torch.ops.aten.index_put(a, [None, j], v, True),
                (x, torch.tensor([1, 3, 1]), r(2, 3, 7, 9)),
            ),
        },
        "complex numbers": {
            name: (lambda a, function=function: torch.view_as_real(function(torch.view_as_complex(a))), (c,))
            for name, function in {
                "by a number": lambda z: z * 1j + 2 - 3j,
                "quotients": lambda z: 1 / z + z / (1 + 2j) + z / (z.real**2 + 1),
                "conjugates": lambda z: (z + z.conj()) * z**2 - z.real,
                "exponential": lambda z: torch.polar(z.abs(), z.angle()) * z.exp(),
                "matrices": lambda z: z @ z.T.conj(),
                "moves": lambda z: torch.cat([z, z.flip(0)])[1:, None].roll(1, -1).expand(-1, 2, -1).sum(0),
                "parts": lambda z: torch.stack(z.chunk(2, -1)).mean(0) + torch.complex(z.real[:, 1:2], z.imag[:, :1]),
                "writes": lambda z: put(torch.zeros_like(z), (slice(1, 3), slice(None, 2)), z[1:, 1:3]),
            }.items()
        }
        | {"a type": (lambda a: torch.view_as_real(a.to(torch.complex64) * 2j), (p,))},
        "transforms": {
            "rows": (lambda a: torch.fft.rfft(a).abs(), (r(3, 50),)),
            "angles": (lambda a: torch.fft.rfft(a).angle(), (r(3, 10),)),
            "long rows": (lambda a: torch.view_as_real(torch.fft.rfft(a, norm="ortho")), (r(3, 600),)),
            "columns": (lambda a: torch.view_as_real(torch.fft.fft(a, dim=1)), (x,)),
            "back": (lambda a: torch.fft.irfft(torch.view_as_complex(a)), (r(2, 9, 2),)),
            "back, odd": (lambda a: torch.fft.irfft(torch.view_as_complex(a), n=17, norm="forward"), (r(2, 9, 2),)),
            "back, long": (lambda a: torch.fft.irfft(torch.view_as_complex(a)), (r(2, 257, 2),)),
            "complex, long": (lambda a: torch.view_as_real(torch.fft.ifft(torch.view_as_complex(a))), (r(2, 300, 2),)),
            "planes": (lambda a: torch.fft.irfft2(torch.fft.rfft2(a) * (2 + 1j), s=(7, 9)), (x,)),
            "the real part": (lambda a: torch.fft.fftn(a, dim=(1, 2)).real, (x[0],)),
            "windows": (
                lambda a: torch.stft(a, 16, 4, window=torch.hann_window(16), return_complex=True).abs(),
                (r(2, 100),),
            ),
            "windows and back": (
                lambda a: torch.istft(torch.stft(a, 16, 4, window=w, return_complex=True), 16, 4, window=w),
                (r(2, 96),),
            ),
        },
        "moves": {
            "filled": (
                lambda a: (torch.full_like(a, 2.5) + a, torch.zeros_like(a), a.new_full((2,), 3), a.fill_(4)),
                (s,),
            ),
            "strided": (lambda a: a.as_strided((3, 2, 2), (2, 1, 3), 1) * 2, (x[0, 0],)),
            "roll": (lambda a: a.roll((1, -2), (2, 3)), (x,)),
            "flip": (lambda a: a.flip(1), (x,)),
            "index": (lambda a: a[:, torch.tensor([2, 0])], (x,)),
            "index from the end": (lambda a: a[:, torch.tensor([-1, 0])], (x,)),
            "slice": (lambda a: a[:, -3:, 1:-1:2, ..., None], (x,)),
            "reflected": (lambda a: F.pad(a, (1, 2, 1, 1), mode="reflect"), (x,)),
            "replicated": (lambda a: F.pad(a, (1, 2, 1, 1), mode="replicate"), (x,)),
            "circular": (lambda a: F.pad(a, (1, 2, 1, 1), mode="circular"), (x,)),
            "pads below 0": (lambda a: F.pad(a, (1, -2, 0, 1), value=3.0), (x,)),
            "masked": (lambda a: a.masked_fill(a > 0, -1), (x,)),
            "repeat": (lambda a: a.repeat(1, 2, 1, 3), (x,)),
            "expand": (lambda a: a[:, :1].expand(-1, 3, -1, -1), (x,)),
            "from the end": (lambda a: a[:, -1] + a.select(1, -2) * 2, (x,)),
            "one of rows": (lambda a: a[..., -3, :], (x,)),
            "variance and mean": (lambda a: torch.var_mean(a, (1, 3), keepdim=True), (x,)),
            "cumulative sum": (lambda a: a.cumsum(1), (x,)),
            "cumulative sum of integers": (lambda a: a.cumsum(-1), (i,)),
            "cumulative product": (lambda a: a.cumprod(0), (p,)),
            "cumulative sum of long rows": (lambda a: a.flip(-1).cumsum(-1).flip(-1) * 2, (r(2, 1000),)),
            "shuffle": (lambda a: F.pixel_shuffle(a, 2), (x,)),
            "stack": (lambda a: torch.stack([a, a * 2], -1), (x,)),
            "gated": (lambda a: F.glu(a, 1), (x,)),
            "softmax": (lambda a: a.softmax(1), (x,)),
            "concatenation of types": (lambda a, c: torch.cat([a, c], 1), (i, p)),
            "concatenation of rows": (lambda a, c: torch.cat([a, c, a * 2]), (p, p)),
            "concatenation of columns": (lambda a, c: torch.cat([a, c[..., :1], a], -1), (x, x)),
            "nothing beside": (lambda a: torch.cat([a[:, :0] * 2, a, a[:, 4:].relu()], 1), (x,)),
            "nothing": (lambda a: (a[:0].exp(), a + 1), (x,)),
            "many parts": (lambda a: torch.cat([a[:, :1]] * 9 + [a], 1).relu(), (x.repeat(1, 1, 9, 9),)),
            "concatenation of truths": (lambda a: torch.cat([a > 0, a > 1], 0), (p,)),
            "mean pool": (lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, count_include_pad=False), (x,)),
            "antialiased": (lambda a: F.interpolate(a, size=(3, 20), mode="bilinear", antialias=True), (x,)),
            "antialiased cubes": (lambda a: F.interpolate(a, scale_factor=0.4, mode="bicubic", antialias=True), (x,)),
            "mean pool by a divisor": (lambda a: F.avg_pool2d(a, 3, 2, 1, ceil_mode=True, divisor_override=5), (x,)),
            "mean pool of rows": (lambda a: F.avg_pool1d(a[0], 3, 2, 1, ceil_mode=True), (x1,)),
            "max pool": (lambda a: F.max_pool2d(a, 3, 2, 1, ceil_mode=True), (x,)),
            **{
                f"samples {mode} {pad} {corners}": (
                    lambda a, g, mode=mode, pad=pad, corners=corners: F.grid_sample(a, g, mode, pad, corners),
                    (x, torch.rand(2, 5, 3, 2) * 2.6 - 1.3),
                )
                for mode, pad in (("bilinear", "zeros"), ("nearest", "border"), ("bicubic", "reflection"))
                for corners in (False, True)
            },
        },
    }


@pytest.mark.parametrize("group", tables())
def test_operators_compute_what_pytorch_does(group: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert wrong(tables()[group], torch.float32, tmp_path) == []
    assert "Warning" not in capfd.readouterr().err  # of TVM, which prints what no user can act on


@pytest.mark.parametrize("group", ["reductions", "windows", "normalizations", "products"])
def test_operators_of_bf16(group: str, tmp_path: Path) -> None:
    functions = tables()[group]
    functions.pop("local response", None)  # PyTorch has none of bf16
    assert wrong(functions, torch.bfloat16, tmp_path) == []


def test_slopes_beside_bf16_are_f32_as_pytorchs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ALLOWED, torch.bfloat16, 0.0)
    functions = {str(slope): (lambda x, slope=slope: F.leaky_relu(x, slope), (torch.randn(999),)) for slope in (0.1, 0.3, 1.7)}  # fmt: skip
    assert wrong(functions, torch.bfloat16, tmp_path) == []
