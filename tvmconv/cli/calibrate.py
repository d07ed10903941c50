"""`tvmconv calibrate`: measure this machine's CPU for the cost model, which chooses among algorithms."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..runtime.processors import allowed_processors
from .output import print_json, print_table, progress_bar
from .parsing import add_command, add_json

if TYPE_CHECKING:
    from .parsing import Subparsers

EXAMPLE = "  tvmconv calibrate\n  tvmconv calibrate --remove\n"


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "calibrate",
        "Measure this machine's CPU, and store the result with the tuning records, by which `tvmconv build` for host then chooses "
        "algorithms. It times kernels on one core for three minutes, and needs an idle machine.",
        EXAMPLE,
        run,
    )
    parser.add_argument("--remove", action="store_true", help="delete the measurement and use the nearest CPU's")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Calibrate, and print the coefficients."""
    from ..targets.cost_rows import forget, keep
    from ..targets.target import CpuTarget, Target

    target = Target.parse("host")
    assert isinstance(target, CpuTarget)
    if arguments.remove:
        print(f"removed from {forget(target.name)}")
        return 0
    from ..tuning.calibrate import calibrate
    from ..tuning.evaluate import Evaluator

    jobs = len(allowed_processors())
    with (
        Evaluator(jobs, threads=1) as evaluator,
        Evaluator(jobs, threads=1, cold_bytes=target.evicting) as cold,
        progress_bar("calibrating") as progress,
    ):
        row = calibrate(target, evaluator, cold, progress=progress)
    path = keep(target.name, row)
    if arguments.json:
        print_json({"target": target.name, "file": str(path), "residuals": row.residuals})
        return 0
    table = [(name, f"{value:.2f}") for name, value in (row.residuals or {}).items()]
    print_table(("algorithm", "residual"), table)
    print(f"multiply-adds of tiles: {row.coefficient('tile.scale'):.2f} cycles; kept in {path}")
    return 0
