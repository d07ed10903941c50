"""`tvmconv tune`: find fast schedules for every problem of the sources, and record them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from ..errors import TuningError, check_extra
from ..family_text import is_family
from ..signature import format_signature, parse_signature
from .output import print_json, print_table, progress_bar
from .parsing import add_command, add_json, add_math, add_records, positive, positive_seconds, unsigned
from .sources import add_sources, network_of, problems_of, read_models

if TYPE_CHECKING:
    from ..fleet.fleet import Fleet
    from ..measuring.peak import Arithmetic
    from ..problem import Problem
    from ..tuning.problem_tuner import TuneResult
    from ..tuning.turns import TuneProgress
    from .parsing import Subparsers

EXAMPLE = """\
  tvmconv tune resnet50.onnx --seconds 600
  tvmconv tune conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32 --trials 128
  tvmconv tune resnet50.so --seconds 600
  tvmconv tune resnet50.onnx --tracker 127.0.0.1:9190 --key zen4 --target remote

Every measurement is saved at once. Ctrl-C records the fastest schedules so far,
in some seconds for each problem (a second Ctrl-C skips that); the same command
continues, and measures nothing again. Once a problem has all N trials, nothing
is left to do: raise N for more. The default schedule is measured first and
compared last, so the winner is never slower. `tvmconv build` uses the winners
of the default folder, or of the one that its --records names.
"""
HEADER = ("signature", "algorithm", "trials", "default us", "tuned us", "gain", "GFLOP/s", "peak %")


def add_parser(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = add_command(
        subparsers,
        "tune",
        "Find fast schedules for every convolution of the sources by measuring them on this machine, and record the winners.",
        EXAMPLE,
        run,
    )
    add_sources(parser, also="a library from tvmconv compile")
    parser.add_argument(
        "--trials",
        type=positive,
        metavar="N",
        help="schedules to measure for each problem, earlier runs included (default: 64, or no limit with --seconds)",
    )
    parser.add_argument(
        "--seconds",
        type=positive_seconds,
        metavar="S",
        help="time to spend on all problems together (default: no limit)",
    )
    parser.add_argument(
        "--target",
        default="host",
        metavar="TARGET",
        help="host (default), an LLVM CPU name whose code this machine can run, or the architecture of its "
        "first GPU, such as cuda:sm_90; with --tracker a target that the servers can run, or remote, "
        "their own CPU",
    )
    parser.add_argument(
        "--tracker",
        metavar="HOST:PORT",
        help="measure on the servers of this RPC tracker (tvmconv rpc-server), not on this machine",
    )
    parser.add_argument("--key", metavar="KEY", help="use only servers registered under this key")
    parser.add_argument("--devices", type=positive, metavar="N", help="maximum number of servers (default: all)")
    parser.add_argument(
        "--scheduler",
        choices=("gradient", "round-robin"),
        default="gradient",
        help="MetaSchedule's choice of the next problem. gradient (default): the largest expected gain, "
        "weighted by how often a model has the problem; round-robin: each in turn",
    )
    parser.add_argument("--seed", type=unsigned, default=0, metavar="N", help="seed of random choices (default: 0)")
    add_math(parser)
    add_records(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Tune; print a line for each problem. Returns 1 if no schedule of one of them works."""
    check_extra("compile", "tvm")
    from ..building.decision.rank import is_cold
    from ..targets.target import Target
    from ..tuning.records import records_of
    from ..tuning.tuner import tune

    records = records_of(arguments.records, written=True)
    networks = [source for source in arguments.sources if source.endswith(".so")]
    others = [source for source in arguments.sources if source not in networks]
    models = read_models(arguments, others) if others else []
    layers = [_layers(path, arguments) for path in networks]
    problems = [*problems_of(models), *(each for found in layers for each in found)]
    fleet = _fleet(arguments)
    target = fleet.target if fleet else Target.parse(arguments.target)
    cold = any(is_cold(each, target, arguments.math) for each in (network_of(models) if models else [], *layers))
    # Measured first, while this process runs nothing else. The peak of servers is not known.
    peak = None if fleet else peak_of([arguments.target])
    with fleet or nullcontext(), progress_line(peak) as progress:
        results = tune(
            problems,
            arguments.target,
            trials=arguments.trials,
            seconds=arguments.seconds,
            seed=arguments.seed,
            math=arguments.math,
            scheduler=arguments.scheduler,
            records=records,
            progress=progress,
            servers=fleet,
            cold=cold,
        )
    if fleet:
        shares = ", ".join(f"{count} by {address}" for address, count in sorted(fleet.measured.items()))
        print(f"measured on {fleet.machine}: {shares or 'nothing new'}", file=sys.stderr)
    if arguments.json:
        print_json([_facts(result, peak) for result in results])
    else:
        print_table(HEADER, [_row(_facts(result, peak)) for result in results])
    return int(any(result.record is None for result in results))


def _layers(path: str, arguments: argparse.Namespace) -> list[Problem]:
    """Return the problems of a network's kernels for fixed extents, with repetitions; tuning is for the network's own target.

    Raises
    ------
    TuningError
        If another target is requested, or the network has no such kernels.
    """
    from ..runtime.networks.file import library_path, read_file
    from ..runtime.networks.sizes import SIZES

    told = read_file(library_path(path)).description
    if arguments.target == "host":
        arguments.target = told["target"]
    if arguments.target not in (told["target"], "remote"):
        raise TuningError(f"{path} is for {told['target']}, not for {arguments.target}; leave --target out")
    rows = [row for each in (told, *told.get(SIZES, ())) for row in each["report"] if not row["why"]]
    found = [parse_signature(row["signature"]) for row in rows if not is_family(row["signature"])]
    if not found:
        raise TuningError(f"{path} has no kernels to tune{' for fixed extents' if rows else ''}")
    print(f"{path}: {len(found)} kernels; once they are tuned, compile the model again", file=sys.stderr)
    return found


def _fleet(arguments: argparse.Namespace) -> Fleet | None:
    """Return the servers that the arguments name; None without ``--tracker``."""
    if arguments.tracker is None:
        for name, given in (
            ("--key", arguments.key),
            ("--devices", arguments.devices),
            ("--target remote", arguments.target == "remote" or None),
        ):
            if given is not None:
                raise TuningError(f"{name} is for servers: also name their tracker: --tracker HOST:PORT")
        return None
    if arguments.key is None:
        raise TuningError("--tracker needs --key KEY, the key of the servers")
    from ..fleet.fleet import Fleet
    from ..targets.target import Target

    target = None if arguments.target == "remote" else Target.parse(arguments.target)
    return Fleet(arguments.tracker, arguments.key, target, arguments.devices)


def peak_of(targets: Sequence[str]) -> Arithmetic | None:
    """Return the CPU's peak of multiply-adds; None if it is unknown or a target is no CPU."""
    from ..measuring.peak import arithmetic
    from ..runtime.processors import kernel_threads
    from ..runtime.selection import BACKENDS
    from ..targets.target import kind_of

    if not all(BACKENDS[kind_of(target)].has_peak for target in targets):
        return None
    return arithmetic(kernel_threads())


def _facts(result: TuneResult, peak: Arithmetic | None) -> dict[str, Any]:
    record = result.record
    facts = {
        "signature": format_signature(result.problem),
        "algorithm": record and record.algorithm,
        "trials": result.trials,
        "failures": len(result.failures),
        "default_seconds": record and record.default_seconds,
        "seconds": record and record.seconds,
        "cold": record and record.cold,
        "gain": result.gain,
    }
    speed = None if record is None else result.problem.flops / record.seconds
    share = None if speed is None or peak is None else peak.share(speed, result.problem.dtype)
    return {**facts, "flops_per_second": speed, "share_of_peak": share}


def _row(facts: dict[str, Any]) -> tuple[str, ...]:
    return (
        facts["signature"],
        facts["algorithm"] or "-",
        str(facts["trials"]),
        _number(facts["default_seconds"], 1e6, 1),
        _number(facts["seconds"], 1e6, 1),
        _number(facts["gain"], 1, 3),
        _number(facts["flops_per_second"], 1e-9, 1),
        _number(facts["share_of_peak"], 100, 1),
    )


def _number(value: float | None, scale: float, digits: int) -> str:
    return "-" if value is None else f"{value * scale:.{digits}f}"


@contextmanager
def progress_line(peak: Arithmetic | None) -> Iterator[Callable[[TuneProgress], None]]:
    """Yield a function that draws the progress of tuning."""
    with progress_bar("tuning") as bar:

        def report(state: TuneProgress) -> None:
            text = f"{state.number}/{state.count} problems, {progress_text(state, peak)}"
            bar(state.trials, state.wanted or 0, text)

        yield report


def progress_text(state: TuneProgress, peak: Arithmetic | None) -> str:
    """Return the line's text: trials, time left, best so far, and the problem."""
    trials = f"{state.trials}/{state.wanted} trials" if state.wanted else f"{state.trials} trials"
    left = "" if state.remaining is None else f", {_clock(state.remaining)} left"
    return f"{trials}{left}, {_best(state, peak)}, {format_signature(state.problem)}"


def _best(state: TuneProgress, peak: Arithmetic | None) -> str:
    if state.best_seconds is None:
        return "nothing works yet"
    speed = state.problem.flops / state.best_seconds
    share = peak.share(speed, state.problem.dtype) if peak else None
    return f"best {state.best_seconds * 1e6:.1f} us, {speed / 1e9:.1f} GFLOP/s" + (
        f" ({share:.0%} of peak)" if share else ""
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
