"""Try random and real convolutions for as long as told; exit with 1 if any failed.

Every kernel is compared with the reference, and the reference with PyTorch. A failure is reduced to a smallest problem
that fails alike, and written down as a test case.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import sys
from pathlib import Path

from tvmconv.algorithms.table import ALGORITHMS
from tvmconv.errors import TvmconvError
from tvmconv.isa.machine import missing_features
from tvmconv.targets.target import CpuTarget, Target

from . import regressions
from .campaign import Campaign, Settings
from .check import emulator_of
from .draw import KINDS


def _cpu(name: str) -> CpuTarget:
    target = Target.parse(name)
    if not isinstance(target, CpuTarget):
        raise SystemExit(f"target is {name!r}; allowed: host, or an LLVM CPU name such as x86-64-v3, x86-64-v4, znver4")
    if emulator_of(target) is None and (missing := missing_features(target.features)):
        raise SystemExit(f"this machine cannot run code for {name}: it has no {', '.join(missing)}")
    return target


def main() -> int:
    """Run the campaign that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, help="stop after so many seconds (default: 60, if not --problems)")
    parser.add_argument("--problems", type=int, help="stop after so many problems")
    parser.add_argument(
        "--seed", type=int, help="of the draw; the same seed gives the same problems (default: a new one)"
    )
    parser.add_argument(
        "--target",
        action="append",
        help="host (default), x86-64-v3, neoverse-n1 (under QEMU), ...; several share the problems",
    )
    parser.add_argument("--dtype", action="append", choices=KINDS, help="of the problems (default: all)")
    parser.add_argument(
        "--algorithm",
        choices=[each.name for each in ALGORITHMS if each.kind == "cpu"],
        metavar="NAME",
        help="only problems that it covers, and only its schedules: for a new one, which few problems may meet",
    )
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes (default: one a core)"
    )
    parser.add_argument(
        "--save", type=Path, default=regressions.PATH, help="where failures are added (default: %(default)s)"
    )
    parser.add_argument(
        "--lenient",
        action="store_true",
        help="do not exit with 1 for rewrites that refused, which the fallbacks of a build make good, nor for kernels "
        "that took too long, which on a shared machine others may be to blame for",
    )
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    arguments = parser.parse_args()
    seconds = arguments.seconds if arguments.seconds or arguments.problems else 60.0
    settings = Settings(
        seed=secrets.randbelow(2**32) if arguments.seed is None else arguments.seed,
        seconds=seconds,
        problems=arguments.problems,
        targets=tuple(map(_cpu, arguments.target or ["host"])),
        dtypes=tuple(arguments.dtype or KINDS),
        jobs=arguments.jobs,
        save=arguments.save,
        algorithm=arguments.algorithm,
    )
    # Kernels are called with more threads than there are cores: those that wait must let the others run.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    campaign = Campaign(settings)
    try:
        campaign.run()
    except TvmconvError as error:
        raise SystemExit(str(error)) from error
    print(json.dumps(campaign.summary(), indent=1) if arguments.json else campaign.text())
    failures = campaign.families.values()
    return 1 if any(not (each.lenient and arguments.lenient) for each in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
