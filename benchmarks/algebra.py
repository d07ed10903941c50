"""Networks with parallel branches and repeated pixels, as written and with their filters joined: `python -m benchmarks.algebra`."""

from __future__ import annotations

import argparse
import json
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from tvmconv.isa.machine import model_name

from . import zoo_networks

NETWORKS = ("mobileone_s0", "repvgg_a0", "fastvit_t8", "repghostnet_100", "densenet121")
_ROUNDS = 5


def main() -> None:
    """Print a row for each network, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=NETWORKS, help="one network; may be given several times")
    parser.add_argument("--folder", type=Path, help="keep the libraries here, and take those that are here")
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn (default 0.5)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        rows = [_row(name, folder, arguments.seconds) for name in arguments.only or NETWORKS]
    if arguments.json:
        print(json.dumps({"cpu": model_name(), "rows": rows}))
        return
    print(f"{model_name()}\n\n| network | rewrites | as written, ms | joined, ms | ratio |\n|---|---|---|---|---|")
    for row in rows:
        ratio = row["written"] / row["joined"]
        print(f"| {row['name']} | {row['rewrites']} | {row['written']:.2f} | {row['joined']:.2f} | {ratio:.2f} |")


def _row(name: str, folder: Path, seconds: float) -> dict[str, Any]:
    import torch

    torch.manual_seed(0)
    drawn = zoo_networks.NETWORKS[name]
    model, image = drawn.make().eval(), torch.rand(drawn.shapes[0])
    joined, lines = _compiled(model, image, folder / f"{name}.joined.so", True)
    written, _ = _compiled(model, image, folder / f"{name}.written.so", False)
    arrays = {written.inputs[0].name: image.numpy()}
    # In turns, and the least of all: other programs only add.
    times: dict[str, list[float]] = {"written": [], "joined": []}
    for _ in range(_ROUNDS):
        for which, network in (("written", written), ("joined", joined)):
            times[which].append(sum(each.seconds for each in network.operators(arrays, seconds)))
    return {"name": name, "rewrites": lines, **{which: min(each) * 1e3 for which, each in times.items()}}


def _compiled(model: Any, image: Any, path: Path, joins: bool) -> tuple[Any, int]:
    import torch

    from tvmconv.relax import rewriting
    from tvmconv.relax.compiling import export
    from tvmconv.relax.torch_export import read_torch
    from tvmconv.runtime.network import load_network

    lines = path.with_suffix(".lines")
    if path.exists() and lines.exists():
        return load_network(path), int(lines.read_text())
    module = read_torch(torch.export.export(model, (image,), strict=False))
    with nullcontext() if joins else mock.patch("tvmconv.relax.rewriting.simplified", lambda mod, target: (mod, [])):
        module = rewriting.use_kernels(module)
    export(module, path)
    lines.write_text(str(len(rewriting.rewrites(module))))
    return load_network(path), int(lines.read_text())


if __name__ == "__main__":
    main()
