"""The picture of whole networks: each peer's time by ours, a panel for each type and batch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from .network_report import title
from .network_results import PEERS, NetworkResult, mean_ratio
from .plots import FASTER, SLOWER, save

_MARKERS = dict(zip(PEERS, "v^sDo", strict=True))
_LABELS = {"pytorch_nxc": "PyTorch, channels_last", "pytorch_ncx": "PyTorch", "torch_compile": "torch.compile, freezing", "openvino": "OpenVINO", "onnxruntime": "onnxruntime"}  # fmt: skip


def plot_networks(results: Sequence[NetworkResult], path: Path) -> None:
    """Draw each peer's time / our time, network by network, to `path` (PNG or SVG by its suffix).

    The fastest peer of each network is filled, green where we are faster still.
    """
    networks = list(dict.fromkeys(row.network for result in results for row in result.rows))
    figure = Figure(figsize=(3.2 * len(results) + 2.2, 0.36 * len(networks) + 1.9), layout="constrained")
    panels = figure.subplots(1, len(results), sharex=True, sharey=True, squeeze=False)[0]
    for axes, result in zip(panels, results, strict=True):
        for row in result.rows:
            place = networks.index(row.network)
            for peer, timing in row.peers.items():
                ratio = timing.median / row.ours.median
                colour = "#999999" if peer != row.fastest else FASTER if ratio >= 1 else SLOWER
                face = colour if peer == row.fastest else "white"
                axes.plot(ratio, place, _MARKERS[peer], color=colour, markerfacecolor=face, markersize=5.5)
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:.3g}")
        axes.set_yticks(range(len(networks)), networks)
        axes.set_ylim(len(networks) - 0.5, -0.5)
        axes.grid(alpha=0.3)
        axes.set_axisbelow(True)
        mean = mean_ratio(result.rows)
        axes.set_title(title(result) + ("" if mean is None else f": geometric mean {mean:.2f}"), size=9, loc="left")
    for peer, marker in _MARKERS.items():
        panels[0].plot([], [], marker, color="#666666", markerfacecolor="white", label=_LABELS[peer])
    figure.supxlabel("a library's time / our time (right of 1: we are faster; filled: the fastest library)", size=9)
    figure.legend(loc="outside upper center", ncols=5 if len(results) > 1 else 3, frameon=False, fontsize=8)
    save(figure, path)
