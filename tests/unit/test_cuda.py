"""What the driver says of the GPUs, and which code and variant each of them takes. The driver is a fake."""

from __future__ import annotations

import subprocess
from ctypes import byref, c_int
from pathlib import Path

import pytest
from fake_cuda import SIGNATURE, compile_driver, machine_with, write_cuda_bundle
from toys import entry, run_python, write_bundle

import tvmconv
from tvmconv.errors import CudaError, InputError, KernelNotFoundError, UnsupportedMachineError
from tvmconv.runtime.bundle import Bundle, BundleTarget, read_bundle, write_manifest
from tvmconv.runtime.cuda import driver as cuda_driver
from tvmconv.runtime.cuda.gpus import Gpu, survey
from tvmconv.runtime.cuda.kernel import CudaKernel
from tvmconv.runtime.kernel import Kernel
from tvmconv.runtime.selection import MACHINE_CODE, PTX, code_for
from tvmconv.signature import parse_signature

PROBLEM = parse_signature(SIGNATURE)


def test_gpus(tmp_path: Path) -> None:
    with machine_with(compile_driver(tmp_path, "90,86")):
        found = survey()
    assert found.obstacle is None and found.driver_version == 13000
    assert found.gpus == (Gpu(0, "Fake 0", 90, 4096), Gpu(1, "Fake 1", 86, 4096))
    assert str(found.gpus[1]) == "cuda:1 (Fake 1, sm_86)"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"init": 100}, r"cuInit failed: no CUDA-capable device is detected \(CUDA_ERROR_NO_DEVICE, 100\)"),
        ({"version": 11080}, "the NVIDIA driver is for CUDA 11.8, and kernels need one for 12.0 or newer; update"),
        ({"architectures": ""}, "the NVIDIA driver sees no GPU"),
    ],
)
def test_no_usable_gpu(tmp_path: Path, options: dict[str, object], why: str) -> None:
    with machine_with(compile_driver(tmp_path, **options)):  # type: ignore[arg-type]
        assert survey().gpus == ()
        with pytest.raises(UnsupportedMachineError, match=f"has no kernel that this machine can run: .*{why}"):
            tvmconv.load(write_cuda_bundle(tmp_path / "bundle", "cuda:sm_90"))


def test_no_driver(tmp_path: Path) -> None:
    with machine_with(tmp_path / "none.so"):
        assert "this machine has no NVIDIA driver (" in (survey().obstacle or "")


def test_a_library_that_is_no_driver(tmp_path: Path) -> None:
    (tmp_path / "empty.c").write_text("")
    subprocess.run(["cc", "-shared", "-fPIC", tmp_path / "empty.c", "-o", tmp_path / "libcuda.so.1"], check=True)
    with machine_with(tmp_path / "libcuda.so.1"):
        assert "has no cuDriverGetVersion" in (survey().obstacle or "")


def test_contexts(tmp_path: Path) -> None:
    with machine_with(compile_driver(tmp_path, "90,90")):
        driver = cuda_driver.driver()
        current = c_int()
        with driver.device(1):
            with driver.device(0):
                driver.call("cuCtxGetDevice", byref(current))
                assert current.value == 0
            driver.call("cuCtxGetDevice", byref(current))
            assert current.value == 1
        assert driver.code("cuCtxGetDevice", byref(current)) == 201
        no_such_gpu = pytest.raises(
            CudaError, match=r"cuDeviceGet failed: an error of the fake driver \(CUDA_ERROR, 101\)"
        )
        with no_such_gpu, driver.device(5):
            pass


def test_a_cpu_bundle_asks_no_driver(tmp_path: Path) -> None:
    """Also of a bundle with both kinds: CUDA in a process forbids its forked children to use it."""
    write_bundle(tmp_path / "cpu", [entry(SIGNATURE)])
    write_cuda_bundle(tmp_path / "gpu", "cuda:sm_90")
    script = """
from tvmconv import load
from tvmconv.runtime import cuda
cuda.driver = None
opened = load(sys.argv[1]); opened[sys.argv[2]]; print(len(opened))
"""
    assert run_python(script, tmp_path / "cpu", SIGNATURE) == "1"


CODE = [
    # architectures of the target, of the GPU, and what runs
    ((90,), 90, (MACHINE_CODE, -90)),
    ((80, 90), 90, (MACHINE_CODE, -90)),
    ((80, 90), 86, (MACHINE_CODE, -80)),
    ((80, 86, 89), 87, (MACHINE_CODE, -86)),
    ((80,), 90, (PTX, -80)),
    ((80, 90), 100, (PTX, -90)),
    ((80, 100), 90, None),  # the PTX is for 100
    ((90,), 89, None),
    ((89,), 86, None),
    ((), 90, None),
    (("90a",), 90, (MACHINE_CODE, -90)),
    (("90a",), 80, None),
    (("90a",), 100, None),  # its instructions are of 9.0 alone
    (("90a",), 120, None),
]


@pytest.mark.parametrize(("architectures", "gpu", "code"), CODE)
def test_code(architectures: tuple[int | str, ...], gpu: int, code: tuple[int, int] | None) -> None:
    target = BundleTarget("cuda", tuple(f"sm_{each}" for each in architectures))
    assert code_for(target, Gpu(0, "", gpu, 0)) == code


VARIANTS = [
    (("cuda:sm_80", "cuda:sm_90"), "90", "cuda:sm_90", "nearer to this GPU's"),
    (("cuda:sm_80", "cuda:sm_90"), "86", "cuda:sm_80", "is older than the code, which is for sm_90"),
    (("cuda:sm_80,sm_90", "cuda:sm_89"), "89", "cuda:sm_89", "nearer to this GPU's"),
    (("cuda:sm_80", "cuda:sm_90"), "120", "cuda:sm_90", "nearer to this GPU's"),
    (("cuda:sm_90a", "cuda:sm_90"), "100", "cuda:sm_90", "not of the one architecture that the code is for, sm_90a"),
    (("cuda:sm_90a", "cuda:sm_80"), "90", "cuda:sm_90a", "nearer to this GPU's"),
]


@pytest.mark.parametrize(("targets", "gpu", "taken", "reason"), VARIANTS)
def test_variants(tmp_path: Path, targets: tuple[str, ...], gpu: str, taken: str, reason: str) -> None:
    bundle = write_cuda_bundle(tmp_path / "bundle", *targets)
    with machine_with(compile_driver(tmp_path, gpu)):
        registry = tvmconv.load(bundle)
        assert registry[SIGNATURE].info.target == taken
        explanation = registry.explain(SIGNATURE)
        verdicts = {variant.target: variant for variant in explanation.variants}
        assert explanation.found and verdicts.pop(taken).taken
        (rejected,) = verdicts.values()
        assert reason in rejected.reason


def test_code_of_one_architecture_is_named(tmp_path: Path) -> None:
    bundle = write_cuda_bundle(tmp_path / "bundle", "cuda:sm_90a")
    with machine_with(compile_driver(tmp_path, "90")):
        (variant,) = tvmconv.load(bundle).explain(SIGNATURE).variants
        assert "cuda:0 (Fake 0, sm_90) runs its machine code for sm_90a" in variant.reason


def _mixed(folder: Path) -> Path:
    """Write a bundle with a CPU variant and one for sm_90."""
    bundle = read_bundle(write_cuda_bundle(folder, "cuda:sm_90"))
    targets = {**bundle.targets, "any": BundleTarget("cpu", ())}
    both = Bundle(folder, "0.1.0", "0.27.0.post1", None, targets, (*bundle.entries, entry(SIGNATURE)))
    write_manifest(both)
    return folder


def test_each_half_of_a_bundle_works_without_the_other(tmp_path: Path) -> None:
    mixed = _mixed(tmp_path / "bundle")
    with machine_with(tmp_path / "no driver.so"):
        registry = tvmconv.load(mixed)
        assert isinstance(registry[SIGNATURE], Kernel) and len(registry) == 1
        with pytest.raises(
            UnsupportedMachineError, match="this machine has no cuda:0: this machine has no NVIDIA driver"
        ):
            registry.lookup(PROBLEM, device="cuda")
        (rejected,) = (variant for variant in registry.explain(SIGNATURE).variants if not variant.taken)
        assert "no NVIDIA driver" in rejected.reason
    manifest = mixed / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"features": []', '"features": ["magic"]'))
    with machine_with(compile_driver(tmp_path, "90")):
        registry = tvmconv.load(mixed)
        assert isinstance(registry[SIGNATURE], CudaKernel) and list(registry) == [SIGNATURE] and SIGNATURE in registry
        with pytest.raises(UnsupportedMachineError, match=r"this machine's CPU can run no kernel .*lacks magic"):
            registry.lookup(PROBLEM, device="cpu")


def test_devices(tmp_path: Path) -> None:
    mixed = _mixed(tmp_path / "bundle")
    with machine_with(compile_driver(tmp_path, "90,80,90")):
        registry = tvmconv.load(mixed)
        assert isinstance(registry.lookup(PROBLEM), Kernel) and isinstance(registry.lookup(PROBLEM, "cpu"), Kernel)
        assert registry.lookup(PROBLEM, "cuda") is registry.lookup(PROBLEM, "cuda:0")
        assert isinstance(registry.lookup(PROBLEM, device="cuda:2"), CudaKernel)
        with pytest.raises(
            UnsupportedMachineError, match=r"cuda:1 \(Fake 1, sm_80\) can run no kernel .* is older than"
        ):
            registry.lookup(PROBLEM, device="cuda:1")
        with pytest.raises(UnsupportedMachineError, match="no cuda:3: it has cuda:0"):
            registry.lookup(PROBLEM, device="cuda:3")
        for bad in ("gpu", "cuda:", "cuda:-1", 0, "cpu:0"):
            with pytest.raises(InputError, match="allowed: cpu, cuda, or cuda: and the number of a GPU"):
                registry.lookup(PROBLEM, device=bad)
        other = PROBLEM.with_(batch=3)
        with pytest.raises(KernelNotFoundError, match=r"on cuda:0 .*the nearest is .*--target cuda:sm_90 -o "):
            registry.lookup(other, device="cuda")
        with pytest.raises(KernelNotFoundError, match=r"--target cuda:sm_80 -o "):
            registry.lookup(other, device="cuda:1")
        with pytest.raises(KernelNotFoundError, match=r"bias is False.* tvmconv build \S+ -o "):
            registry.lookup(PROBLEM.with_(bias=True))


def test_a_gpu_older_than_the_code(tmp_path: Path) -> None:
    bundle = write_cuda_bundle(tmp_path / "bundle", "cuda:sm_90")
    reason = r"cuda:0 \(Fake 0, sm_80\) is older than the code, which is for sm_90"
    with machine_with(compile_driver(tmp_path, "80")), pytest.raises(UnsupportedMachineError, match=reason):
        tvmconv.load(bundle)
