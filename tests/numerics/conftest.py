"""What the tests of compiled kernels share."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import warm_workers
from campaign import check
from campaign.check import Batch, Case, Outcome
from toys import compile_bundle, small_problem

from tvmconv import ops
from tvmconv.algorithms import table as algorithms
from tvmconv.lowering.compiler import Choice, samples
from tvmconv.signature import format_signature, parse_signature
from tvmconv.support.sandbox import Sandbox
from tvmconv.targets.target import CpuTarget, Target

# Of a batch, on a machine that does much else.
BATCH_SECONDS = 600.0
# Tests of networks, test_network_*, whose code or last bits are those of networks as they ship.
_OPTIMIZED = {"attention", "elementary", "halves", "kernels", "normalizations", "pools", "resizes", "results"}


@pytest.fixture(scope="module", autouse=True)
def graphs_are_not_optimized_by_llvm(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compile graphs' operators without LLVM's optimizations: these take a third of a graph test's time, and two thirds of a kernel's.

    It leaves out nothing that this project does. Networks of `tests/conformance` and `test_networks.py` are compiled as they ship.
    """
    name = request.module.__name__
    with pytest.MonkeyPatch.context() as patch:
        if name.startswith(("test_network_", "test_torch")) and name.removeprefix("test_network_") not in _OPTIMIZED:
            patch.setattr(CpuTarget, "tvm", warm_workers.unoptimized(CpuTarget.tvm))
            patch.setenv(warm_workers.UNOPTIMIZED, "1")
        yield


@pytest.fixture(scope="session")
def small_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle with small convolutions of every type, a transposed one, and edge cases."""
    problems = [small_problem(dtype, bias) for dtype in ("f32", "f16", "bf16") for bias in (False, True)]
    problems += [
        ops.convolution_backprop_data(
            (1, 7, 6, 10), (3, 3, 9, 10), strides=(2, 2), dilations=(1, 1), pads_begin=(1, 1), pads_end=(0, 0)
        ),
        small_problem(batch=0),
        small_problem(in_channels=0, bias=True),
    ]
    return compile_bundle(tmp_path_factory.mktemp("bundle") / "small", problems, strict=problems, quick=True)


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox[Batch, list[Outcome]]]:
    """Return the process in which the campaign tries kernels: importing TVM and PyTorch takes seconds."""
    made: Sandbox[Batch, list[Outcome]] = Sandbox(check.work, threads=1, torch=True)
    yield made
    made.close()


@pytest.fixture(scope="session")
def try_kernels(sandbox: Sandbox[Batch, list[Outcome]]) -> Callable[..., None]:
    """Return what compiles cases together and tries each as the campaign does: see `campaign.run`.

    ``try_kernels(cases, quick=False)`` compiles them as they ship; by default LLVM optimizes nothing, which takes a third of
    the time and leaves out nothing that this project does.
    """

    def try_all(cases: Sequence[Case], quick: bool = True) -> None:
        outcomes = sandbox.call(Batch(tuple(cases), quick), BATCH_SECONDS)
        assert {each.number for each in outcomes} == set(range(len(cases)))
        failed = [each for each in outcomes if each.kind != "right"]
        assert not failed, "\n".join(f"{format_signature(cases[each.number].problem)}: {each}" for each in failed)

    return try_all


@pytest.fixture(scope="session")
def try_sketches(try_kernels: Callable[..., None]) -> Callable[..., None]:
    """Return what tries a problem by an algorithm: the default with a plain filter, then each sketch with a packed one.

    ``try_sketches(signature, name, target="host")`` draws each sketch's decisions by the signature.
    """

    def try_all(signature: str, name: str, target: str = "host") -> None:
        problem, cpu, algorithm = parse_signature(signature), Target.parse(target), algorithms.get(name)
        draw, choices = random.Random(signature), [(Choice(name), False)]
        for number, sketch in enumerate(algorithm.sketches(algorithm.define(problem, cpu), cpu)):
            decisions = tuple(draw.randrange(len(sample.attrs[0])) for sample in samples(sketch))
            choices.append((Choice(name, number, decisions), True))
        try_kernels([Case(problem, cpu, 0, tuple(choices))])

    return try_all
