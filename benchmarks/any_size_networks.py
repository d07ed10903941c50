"""Networks of free sizes beside networks of each size, and beside onnxruntime with free dimensions, in turns in one process.

``python -m benchmarks.any_size_networks recognizer whisper --threads 1`` prints a row for each size: what a call takes that the network
has seen before, as a share of a network's of that size and of onnxruntime's; and the first call of a size as a share of
onnxruntime's first. Medians of ratios of calls one after the other, as others may use the machine, too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any

import numpy as np

from tvmconv.cli.output import print_table
from tvmconv.family import Extent
from tvmconv.isa.machine import model_name

from .any_size import time_in_turns, time_once


@dataclass(frozen=True)
class Case:
    """A network, what its input may be, and the sizes to try; `source` writes its file, or is what a package ships."""

    source: tuple[str, str] | Callable[[], Any]
    shape: str
    sizes: tuple[tuple[int, ...], ...]


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


def _resnet() -> Any:
    from .zoo_networks import NETWORKS

    return NETWORKS["resnet18"].make()


def _fcn() -> Any:
    from torch import nn

    trunk = list(_resnet().children())[:-2]
    return nn.Sequential(*trunk, nn.Conv2d(512, 21, 1), nn.Upsample(scale_factor=32, mode="bilinear"))


def _unet() -> Any:
    from .models.unet import model

    return model(0.5)


CASES: Mapping[str, Case] = {
    "recognizer": Case(
        ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"), "1x3x48x?", ((1, 3, 48, 64), (1, 3, 48, 333), (1, 3, 48, 1024))
    ),
    "detector": Case(
        ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"), "1x3x?%32x?%32", ((1, 3, 320, 448), (1, 3, 736, 544))
    ),
    "unet": Case(_unet, "1x1x?%16x?%16", ((1, 1, 112, 176), (1, 1, 240, 320))),
    "fcn": Case(_fcn, "1x3x?%32x?%32", ((1, 3, 160, 224), (1, 3, 352, 480))),
    "resnet18": Case(_resnet, "?x3x224x224", ((1, 3, 224, 224), (3, 3, 224, 224))),
    "whisper": Case(_whisper, "1x80x?[4:3000]", ((1, 80, 250), (1, 80, 1501))),
    "speech": Case(_speech, "1x?[400:]", ((1, 16000), (1, 50003))),
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Time networks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.any_size_networks", description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--threads", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each size; default: %(default)s")
    arguments = parser.parse_args(argv)
    rows: list[tuple[str, str, float, float, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.networks or CASES:
            for row in _rows(name, CASES[name], Path(folder), arguments):
                rows.append(row)
                print(*row, file=sys.stderr)
    header = ("network", "size", "ms", "/ one of the size", "/ onnxruntime", "first, ms", "/ onnxruntime's first")
    print(f"{model_name()}, {arguments.threads} threads")
    print_table(header, [(*row[:2], *(f"{each:.2f}" for each in row[2:])) for row in rows])
    for column in (3, 4, 6):
        print(f"{header[column]}: {geometric_mean(row[column] for row in rows):.2f} by the mean")  # type: ignore[misc]
    return 0


def _rows(name: str, case: Case, folder: Path, arguments: argparse.Namespace) -> Any:
    import onnxruntime

    from tvmconv.frontends.onnx.graph import declared_inputs
    from tvmconv.frontends.shapes import Bucket
    from tvmconv.network.compile import build
    from tvmconv.network.read.onnx.free import free_dims
    from tvmconv.network.read.onnx.reader import as_relax, fix_shapes, load_file, read_onnx
    from tvmconv.runtime.networks.network import load_network

    source = _write(name, case, folder)
    free = free_dims(
        declared_inputs(load_file(source).graph), {"": tuple(map(Extent.parse, case.shape.split("x")))}, source
    )
    build(as_relax(fix_shapes(source, free=free), source, free), folder / f"{name}.so")
    network = load_network(folder / f"{name}.so")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    (given,) = (each.name for each in network.inputs)
    for shape in case.sizes:
        data = {given: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
        size = "x".join(map(str, shape))
        build(read_onnx(source, Bucket({"": shape})), folder / f"{name}-{size}.so")
        first = [time_once(lambda data=data: session.run(None, data)), time_once(lambda data=data: network(**data))]  # type: ignore[misc]
        fixed = load_network(folder / f"{name}-{size}.so")
        calls = {
            "free": network.call(data),
            "onnxruntime": lambda data=data: session.run(None, data),
            "fixed": fixed.call(data),
        }
        seconds = time_in_turns(calls, arguments.seconds)
        ratios = [
            median(one / other for one, other in zip(seconds["free"], seconds[each], strict=True))
            for each in ("fixed", "onnxruntime")
        ]
        yield name, size, 1e3 * median(seconds["free"]), *ratios, 1e3 * first[1], first[1] / first[0]


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
    given = torch.randn(case.sizes[0])
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
