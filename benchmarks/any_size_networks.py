"""Networks of free sizes beside networks of each size, and beside peers with free dimensions, in turns in one process.

``python -m benchmarks.any_size_networks recognizer whisper --threads 1`` prints a row for each size: what a call takes that the network
has seen before, as a share of a network's of that size and of each peer's; the first call of a size as a share of the peers' first; and
what it takes to plan a size. Medians of ratios of calls one after the other, as others may use the machine, too. All have called each
network at another size before.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from tvmconv.cli.output import print_table
from tvmconv.family import Extent
from tvmconv.isa.machine import model_name

from .any_size import PEERS, time_in_turns, time_once


@dataclass(frozen=True)
class Case:
    """A network, its input's limits, the size of its first call, and the sizes to time; `source` writes its file, or is a package's file."""

    source: tuple[str, str] | Callable[[], Any]
    shape: str
    before: tuple[int, ...]
    sizes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Row:
    """A network at a size: milliseconds of a call, of the first, and to plan it; shares of the time of others, by name."""

    network: str
    size: str
    taken: float
    first: float
    planned: float
    shares: Mapping[str, float]
    first_shares: Mapping[str, float]

    def cells(self) -> tuple[str, ...]:
        """Return its line of the table."""
        shares = [f"{each:.2f}" for each in (*self.shares.values(), *self.first_shares.values())]
        return (self.network, self.size, f"{self.taken:.2f}", *shares, f"{self.first:.2f}", f"{self.planned:.3f}")


def _layers(width: int, heads: int, count: int) -> Any:
    """Return layers of a transformer."""
    from torch import nn
    from torch.nn import functional as F

    class Layer(nn.Module):  # type: ignore[misc]
        """Attention, and two products, each behind a normalization."""

        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.parts, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, rows: Any) -> Any:
            batch, length, _ = rows.shape
            parts = self.parts(self.norms[0](rows)).reshape(batch, length, 3, heads, width // heads)
            read = F.scaled_dot_product_attention(*parts.permute(2, 0, 3, 1, 4).unbind(0))
            rows = rows + self.joined(read.transpose(1, 2).reshape(batch, length, width))
            return rows + self.narrow(F.gelu(self.wide(self.norms[1](rows))))

    return nn.Sequential(*(Layer() for _ in range(count)))


def _whisper() -> Any:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Encoder(nn.Module):  # type: ignore[misc]
        """As whisper's, tiny, of up to 3000 frames."""

        def __init__(self, width: int = 384) -> None:
            super().__init__()
            self.first, self.second = nn.Conv1d(80, width, 3, padding=1), nn.Conv1d(width, width, 3, 2, 1)
            self.places, self.layers = nn.Parameter(torch.randn(1500, width)), _layers(width, 6, 4)

        def forward(self, frames: Any) -> Any:
            rows = F.gelu(self.second(F.gelu(self.first(frames)))).transpose(1, 2)
            return self.layers(rows + self.places[: rows.shape[1]])

    return Encoder()


def _speech() -> Any:
    from torch import nn
    from torch.nn import functional as F

    class Speech(nn.Module):  # type: ignore[misc]
        """As wav2vec 2.0, a quarter as wide, of four layers."""

        def __init__(self, width: int = 192) -> None:
            super().__init__()
            sizes = [(10, 5), *[(3, 2)] * 4, *[(2, 2)] * 2]
            inputs = [1] + [128] * 6
            self.reading = nn.ModuleList(
                nn.Conv1d(x, 128, *size, bias=False) for x, size in zip(inputs, sizes, strict=True)
            )
            self.norm, self.first = nn.GroupNorm(128, 128), nn.Sequential(nn.LayerNorm(128), nn.Linear(128, width))
            self.places = nn.Conv1d(width, width, 128, padding=64, groups=16)
            self.layers, self.last = _layers(width, 4, 4), nn.Linear(width, 32)

        def forward(self, sound: Any) -> Any:
            wide = F.gelu(self.norm(self.reading[0](sound[:, None])))
            for each in self.reading[1:]:
                wide = F.gelu(each(wide))
            rows = self.first(wide.transpose(1, 2))
            places = F.gelu(self.places(rows.transpose(1, 2))[:, :, :-1])
            return self.last(self.layers(rows + places.transpose(1, 2)))

    return Speech()


def _resnet50() -> Any:
    from .models.resnet50 import model

    return model()


def _fcn() -> Any:
    from torch import nn

    from .zoo_networks import NETWORKS

    trunk = list(NETWORKS["resnet18"].make().children())[:-2]
    return nn.Sequential(*trunk, nn.Conv2d(512, 21, 1), nn.Upsample(scale_factor=32, mode="bilinear"))


def _unet() -> Any:
    from .models.unet import model

    return model(0.5)


def _hifigan() -> Any:
    from .models.hifigan import model

    return model(0.25)


_OCR = "rapidocr_onnxruntime"
CASES: Mapping[str, Case] = {
    "recognizer": Case(
        (_OCR, "models/ch_PP-OCRv4_rec_infer.onnx"),
        "1x3x48x?",
        (1, 3, 48, 320),
        ((1, 3, 48, 64), (1, 3, 48, 149), (1, 3, 48, 333), (1, 3, 48, 1024)),
    ),
    "detector": Case(
        (_OCR, "models/ch_PP-OCRv4_det_infer.onnx"),
        "1x3x?%32x?%32",
        (1, 3, 256, 256),
        ((1, 3, 96, 160), (1, 3, 320, 448), (1, 3, 736, 544)),
    ),
    "unet": Case(_unet, "1x1x?%16x?%16", (1, 1, 96, 96), ((1, 1, 48, 80), (1, 1, 112, 176), (1, 1, 240, 320))),
    "fcn": Case(_fcn, "1x3x?%32x?%32", (1, 3, 128, 128), ((1, 3, 64, 96), (1, 3, 160, 224), (1, 3, 352, 480))),
    "resnet50": Case(
        _resnet50, "?x3x224x224", (2, 3, 224, 224), ((1, 3, 224, 224), (3, 3, 224, 224), (5, 3, 224, 224))
    ),
    "hifigan": Case(_hifigan, "1x80x?", (1, 80, 40), ((1, 80, 17), (1, 80, 61), (1, 80, 203))),
    "whisper": Case(_whisper, "1x80x?[4:3000]", (1, 80, 400), ((1, 80, 99), (1, 80, 250), (1, 80, 1501))),
    "speech": Case(_speech, "1x?[400:]", (1, 8000), ((1, 3001), (1, 16000), (1, 50003))),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Time networks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.any_size_networks", description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each size; default: %(default)s")
    parser.add_argument("--folder", type=Path, help="of libraries, which is filled where they lack, to time them again")
    arguments = parser.parse_args(argv)
    os.environ["OMP_NUM_THREADS"] = str(arguments.threads)  # of our networks, when they are loaded
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        folder.mkdir(exist_ok=True)
        for name in arguments.networks or CASES:
            for row in _rows(name, CASES[name], folder, arguments):
                rows.append(row)
                print(*row.cells(), file=sys.stderr)
    print(f"{model_name()}, {arguments.threads} threads")
    others = [f"/ {name}" for name in ("one of the size", *PEERS)]
    firsts = [f"first / {name}'s" for name in PEERS]
    print_table(
        ("network", "size", "ms", *others, *firsts, "first, ms", "to plan, ms"), [each.cells() for each in rows]
    )
    fastest = [(max(each.shares[name] for name in PEERS), max(each.first_shares.values())) for each in rows]
    means = {
        "beside one of the size": [each.shares["fixed"] for each in rows],
        "beside the fastest peer": [seen for seen, _ in fastest],
        "beside the fastest peer, first calls": [first for _, first in fastest],
    }
    for text, shares in means.items():
        print(f"{text}: {geometric_mean(shares):.2f} by the mean, the worst {max(shares):.2f}")
    return 0


def _build(name: str, case: Case, folder: Path) -> tuple[str, dict[str, Path]]:
    """Return a network's file, and the libraries of it by size, "free" that of all; those that the folder lacks are built."""
    from tvmconv.frontends.onnx.graph import declared_inputs
    from tvmconv.frontends.shapes import Bucket
    from tvmconv.network.compile import build
    from tvmconv.network.read.onnx.free import free_dims
    from tvmconv.network.read.onnx.reader import as_relax, fix_shapes, load_file, read_onnx

    source, sizes = _write(name, case, folder), {"x".join(map(str, each)): each for each in case.sizes}
    paths = {size: folder / f"{name}-{size}.so" for size in ("free", *sizes)}
    for size, path in paths.items():
        if path.exists():
            continue
        if size in sizes:
            build(read_onnx(source, Bucket({"": sizes[size]})), path)
            continue
        extents = tuple(map(Extent.parse, case.shape.split("x")))
        free = free_dims(declared_inputs(load_file(source).graph), {"": extents}, source)
        build(as_relax(fix_shapes(source, free=free), source, free), path)
    return source, paths


def _rows(name: str, case: Case, folder: Path, arguments: argparse.Namespace) -> Iterator[Row]:
    from tvmconv.runtime.networks.network import load_network

    source, paths = _build(name, case, folder)
    network = load_network(paths.pop("free"))
    (given,) = (each.name for each in network.inputs)
    peers = {peer: _peer(peer, source, given, arguments.threads) for peer in PEERS}
    before = np.zeros(case.before, np.float32)
    network(**{given: before})
    for call in peers.values():
        call(before)
    for (size, path), shape in zip(paths.items(), case.sizes, strict=True):
        data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        first = {peer: time_once(partial(call, data)) for peer, call in peers.items()}
        planned = time_once(lambda shape=shape: network.prepare(**{given: shape}))  # type: ignore[misc]
        own = planned + time_once(lambda data=data: network(**{given: data}))  # type: ignore[misc]
        fixed = load_network(path)
        calls = {"free": network.call({given: data}), "fixed": fixed.call({given: data})}
        calls |= {peer: partial(call, data) for peer, call in peers.items()}
        seconds = time_in_turns(calls, arguments.seconds)
        shares = {
            other: median(one / two for one, two in zip(seconds["free"], seconds[other], strict=True))
            for other in ("fixed", *PEERS)
        }
        first_shares = {peer: own / first[peer] for peer in PEERS}
        yield Row(name, size, 1e3 * median(seconds["free"]), 1e3 * own, 1e3 * planned, shares, first_shares)


def _peer(name: str, source: str, given: str, threads: int) -> Callable[[Any], object]:
    """Return another library's call of a network's file, whose dimensions are free."""
    if name == "onnxruntime":
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        return lambda data: session.run(None, {given: data})
    from .peers.openvino import compile_model

    request = compile_model(source, "f32", threads).create_infer_request()
    return lambda data: request.infer({0: data}, share_inputs=True, share_outputs=True)


def _write(name: str, case: Case, folder: Path) -> str:
    """Return the network's file, whose free dimensions have names."""
    if isinstance(case.source, tuple):
        package, file = case.source
        found = find_spec(package)
        assert found is not None and found.submodule_search_locations, f"pip install --no-deps {package}"
        return str(Path(found.submodule_search_locations[0]) / file)
    import torch

    torch.manual_seed(0)
    path, axes = str(folder / f"{name}.onnx"), {}
    for axis, extent in enumerate(case.shape.split("x")):
        if Extent.parse(extent).is_free:
            axes[axis] = f"size{axis}"
    given = torch.randn(case.before)
    torch.onnx.export(
        case.source().eval(),
        (given,),
        path,
        input_names=["x"],
        dynamic_axes={"x": axes},
        dynamo=False,
        opset_version=17,
    )
    return path


if __name__ == "__main__":
    sys.exit(main())
