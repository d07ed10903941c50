"""What the tests of exported libraries share: bundles with a kernel of each algorithm, and the C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from models import save
from numerics.test_compiler import SPACES
from toys import compile_bundle, small_problem

from tvmconv.algorithms import table as algorithms
from tvmconv.exporting.provider_library import export_provider
from tvmconv.onnxruntime import racing
from tvmconv.problem import Problem
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target

HERE = Path(__file__).parent
STRICT = ("-Wall", "-Wextra", "-Werror", "-pedantic", "-std=c99", "-D_POSIX_C_SOURCE=200809L")


@pytest.fixture(autouse=True, scope="session")
def short_races() -> Iterator[None]:
    """Replace the clock of providers' races: their findings are tested, not their speed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(racing, "_TURN_SECONDS", 0.001)
        patch.setattr(racing, "_PAUSE_SECONDS", 0.0)
        yield


@pytest.fixture(scope="session")
def file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the file of a small network, for other systems to be compiled for."""
    from .test_onnxruntime_network import network_model

    return save(network_model(channels=16, size=(20, 24)), tmp_path_factory.mktemp("model"))


CPP_COMPILERS = [
    ("g++", "-std=c++17"),
    ("clang++", "-std=c++20"),
    pytest.param(("g++", "-std=c++20"), marks=pytest.mark.slow),
    pytest.param(("clang++", "-std=c++17"), marks=pytest.mark.slow),
]


@pytest.fixture(params=CPP_COMPILERS, ids="".join)
def cpp(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Return the command of each compiler for C++ that is installed, in each standard that the headers promise."""
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"{request.param[0]} is not installed")
    return request.param


needs_cmake = pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")


def run(*command: object, cwd: Path | None = None, **environment: str) -> str:
    """Run a program and return its output; fail with its message otherwise."""
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=600, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"{command[0]} ended with {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def choices_of(problems: Iterable[Problem], target: Target, math: str = "default") -> dict[Problem, str]:
    """Return an algorithm for each problem, so that all that cover one of them have their turn."""
    taken: Counter[str] = Counter()
    chosen = {}
    covering = {problem: [each.name for each in algorithms.applicable(problem, target, math)] for problem in problems}
    for problem in sorted(covering, key=lambda each: len(covering[each])):
        chosen[problem] = min(covering[problem], key=lambda name: taken[name])
        taken[chosen[problem]] += 1
    return chosen


@pytest.fixture
def warnings_are_said() -> None:
    """Other tests of the same process silence onnxruntime."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(2)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a provider that computes nothing, and describes graphs."""
    return export_provider(None, tmp_path_factory.mktemp("asked") / "graphs.so")


@pytest.fixture(scope="session", params=[4, pytest.param(1, marks=pytest.mark.slow)])
def spaces_bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of every type, layout, rank and algorithm, with epilogues and edge cases; or of some of them."""
    return compile_spaces(tmp_path_factory.mktemp("exporting") / "spaces.bundle", "host", step=request.param)


# Of all types of integers, with zero points at a type's end and between, by pairs, quads and taps.
INTEGERS = [
    "conv2d-n1-i8x5x5-o8x5x5-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8u8-zx128-bias-scale-q_0.1_3",
    "conv2d-n1-i24x9x9-o40x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-s8s8s32",
    "conv1d-n1-i16x7-o5x7-k1-s1-d1-p0_0-g1-NXC-XIO-u8u8f32-zx255-zw128-scale",
    "conv2d-n1-i32x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g32-NXC-XIO-u8s8s8-bias-scale-q_0.1_-3",
    "backprop2d-n1-i20x5x6-o20x9x11-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-OIX-s8s16u8-bias-scale-q_0.1_3",
    "conv2d-n1-i16x8x8-o16x8x8-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8u8-zx3-bias-scale-silu-q_0.1_3",
    "conv2d-n1-i16x8x8-o16x8x8-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-u8s8bf16-bias_f32-scale-add-relu",
    "conv2d-n1-i16x12x12-o16x12x12-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-s8s8u8-scale-q_0.1_3",
    "conv2d-n1-i16x12x13-o16x12x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NCX-OIX-u8s8s8-bias-scale-relu-q_0.1_3",
    "backprop2d-n1-i16x5x6-o24x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-u8s8f16-scale",
    "backprop2d-n1-i16x5x6-o24x10x12-k4x4-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-s8u8s32",
]


def compile_spaces(folder: Path, name: str, math: str = "default", step: int = 1) -> Path:
    """Compile such a bundle for a target, of each problem or of every second, and so on."""
    target = Target.parse(name)
    problems = list(map(parse_signature, [*SPACES[::step], *INTEGERS]))
    problems += [problems[0].with_(epilogue="scale-add-prelu"), small_problem("bf16", True, epilogue="silu")]
    problems += [
        small_problem(batch=0),
        small_problem(in_channels=0, bias=True),
        small_problem("f16", True, epilogue="clip_-1_6"),
    ]
    chosen = choices_of(problems, target, math)
    covering = {each.name for problem in problems for each in algorithms.applicable(problem, target, math)}
    assert set(chosen.values()) == covering
    return compile_bundle(folder, problems, name, choices=chosen, quick=True)


SMALL = "conv2d-n1-i24x14x14-o40x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"


@pytest.fixture(scope="session")
def few_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a bundle of some kernels: one that packs its filter and takes workspaces, one in place, one of each type."""
    names = [SMALL, "conv2d-n1-i40x14x14-o136x14x14-k1x1-s1x1-d1x1-p0x0_0x0-g1-NXC-XIO-f32"]
    problems = [*map(parse_signature, names), small_problem("f16", True), small_problem("bf16")]
    choices = {problems[0]: "winograd4", problems[1]: "direct", problems[2]: "direct", problems[3]: "direct"}
    return compile_bundle(tmp_path_factory.mktemp("few") / "few.bundle", problems, choices=choices, quick=True)
