"""Reproducible networks: the ten of benchmarks/models, narrow and small, have one digest on AVX2, AVX-512, AVX512-BF16 and 64-bit ARM.

They are libraries for C, which run here or under QEMU. Weights and inputs are whole numbers times powers of two, so that each machine
makes the same ones.
"""

from __future__ import annotations

import hashlib
import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from emulated import COMPILER, N1, cpu_of, emulator_of  # noqa: E402

from benchmarks.models import NETWORKS  # noqa: E402
from tvmconv import cli  # noqa: E402
from tvmconv.fills import numpy_dtype  # noqa: E402
from tvmconv.runtime.bundle import BundleTarget  # noqa: E402
from tvmconv.runtime.selection import obstacle  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden/reproducible_networks.txt"
SOURCE = Path(__file__).with_name("answers.c")
TARGETS = ("x86-64-v3", "x86-64-v4", "cooperlake", N1)
WIDTH = 0.125
SIZES = {"inception_v3": 75, "unet": 16, "unet3d": 4, "hifigan": 2}  # the least that each takes, 32 of others
CASES = [*((name, "f32") for name in NETWORKS), ("unet3d", "bf16"), ("unet3d", "f16")]


@torch.no_grad()
def give_exact_numbers(network: Any) -> None:
    """Give a network weights with which values neither die nor explode, and that have few bits."""
    draw = np.random.default_rng(0)
    for name, tensor in network.state_dict().items():
        if not tensor.is_floating_point():
            continue
        numbers = draw.integers(-7, 8, tuple(tensor.shape)) / 8
        if tensor.ndim > 1:
            numbers *= 2.0 ** round(np.log2(2 / np.sqrt(tensor[0].numel())))
        elif name.endswith(("weight", "running_var")):
            numbers = 1 + numbers / 4
        tensor.copy_(torch.from_numpy(numbers))


def program(name: str, folder: Path) -> tuple[Path, np.ndarray[Any, Any]]:
    """Return the file of a network, and its input."""
    module = import_module(f"benchmarks.models.{name}")
    network = module.model(WIDTH).eval()
    give_exact_numbers(network)
    data = module.example(1, SIZES.get(name, 32))
    numbers = np.random.default_rng(1).integers(-16, 17, data.shape) / 8
    with torch.no_grad():
        torch.export.save(torch.export.export(network, (data,), strict=False), folder / f"{name}.pt2")
    return folder / f"{name}.pt2", numbers


def digest(name: str, dtype: str, target: str, folder: Path) -> str:
    """Return that of what a network computes as a library for a target."""
    emulator = emulator_of(target)
    if emulator is None and (reason := obstacle(BundleTarget("cpu", cpu_of(target).features))):
        pytest.skip(reason)
    file, numbers = program(name, folder)
    options = ["--math", "reproducible", "--target", target, "--dtype", dtype, "--format", "c"]
    assert cli.main(["compile", str(file), *options, "-o", str(folder / "net")]) == 0
    link = ["libnet.a", "-lm", "-pthread", "-static", "-o", "answers"]
    subprocess.run([COMPILER if emulator else "cc", "-I.", SOURCE, *link], cwd=folder / "net", check=True)
    command = [emulator.program, "-cpu", emulator.cpu, "./answers"] if emulator else ["./answers"]
    given = numbers.astype(numpy_dtype(dtype)).tobytes()
    answer = subprocess.run(command, cwd=folder / "net", input=given, capture_output=True, check=True).stdout
    found = np.frombuffer(answer, numpy_dtype(dtype)).astype(np.float64)
    assert np.isfinite(found).all() and len(set(found)) > found.size / 4  # neither exploded nor dead
    return hashlib.sha256(answer).hexdigest()[:16]


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_a_network_has_the_golden_answer(name: str, dtype: str, target: str, tmp_path: Path) -> None:
    known = dict(line.rsplit(maxsplit=1) for line in GOLDEN.read_text().splitlines())
    assert digest(name, dtype, target, tmp_path) == known[f"{name} {dtype}"]


def test_golden_answers_are_written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> None:
    if not request.config.getoption("--update-golden"):
        pytest.skip("without --update-golden")
    found = {case: digest(*case, "x86-64-v3", tmp_path_factory.mktemp("network")) for case in CASES}
    GOLDEN.write_text("".join(f"{name} {dtype} {each}\n" for (name, dtype), each in found.items()))
