"""Bundles for GPUs, built without one and read back."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path

import pytest
from cuda_kernels import ELF, MAGIC, PTX, images_of, needs_nvcc

from tvmconv import cli
from tvmconv.building import builder
from tvmconv.errors import ToolchainError
from tvmconv.lowering.compiler import compile_problem
from tvmconv.lowering.cuda.nvcc import nvcc_paths
from tvmconv.runtime.bundle import Bundle, read_bundle
from tvmconv.runtime.verify import verify
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Records

SIGNATURE = "backprop2d-n1-i8x5x5-o4x11x11-k3x3-s2x2-d1x1-p0x0_0x0-g1-NXC-XIO-bf16-bias"
CPU = "x86-64-v3"
TARGETS = {"cuda:sm_80,sm_90": ([80, 90], 90), "cuda:sm_100": ([100], 100)}
EM_CUDA = 190


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("cuda")
    records = Records(folder / "records")
    for targets in (list(TARGETS), CPU):  # the second build adds to the first
        builder.build([parse_signature(SIGNATURE)], folder / "b", targets, jobs=1, verify=False, records=records)
    return read_bundle(folder / "b")


def _library(bundle: Bundle, target: str) -> Path:
    (entry,) = (entry for entry in bundle.entries if entry.target == target)
    return bundle.library(entry)


def _images(library: Path) -> list[tuple[int, int, bytes]]:
    """Return the kind, architecture and code of each part of the fatbin that is embedded in a library."""
    content = library.read_bytes()
    assert content.count(MAGIC) == 1
    return images_of(content[content.index(MAGIC) :])


def _elf_architecture(cubin: bytes) -> int:
    """Return what the flags of a cubin's ELF header say: in their second byte since version 8 of the ABI, else the first."""
    assert cubin[:4] == b"\x7fELF" and struct.unpack_from("<H", cubin, 18) == (EM_CUDA,)
    (flags,) = struct.unpack_from("<I", cubin, 48)
    return flags >> 8 & 0xFF if cubin[8] >= 8 else flags & 0xFF


@needs_nvcc
@pytest.mark.parametrize("target", TARGETS)
def test_holds_machine_code_for_each_architecture_and_ptx_of_the_last(bundle: Bundle, target: str) -> None:
    architectures, last = TARGETS[target]
    images = _images(_library(bundle, target))
    cubins = [(architecture, code) for kind, architecture, code in images if kind == ELF]
    assert [architecture for architecture, _ in cubins] == architectures
    for architecture, code in cubins:
        assert _elf_architecture(code) == architecture
        assert b"\0.text.tvmconv_kernel" in code
    ((kind, architecture, ptx),) = (image for image in images if image[0] != ELF)
    assert (kind, architecture) == (PTX, last)
    assert f".target sm_{last}".encode() in ptx and b".entry tvmconv_kernel" in ptx


@needs_nvcc
def test_holds_no_source_and_no_paths(bundle: Bundle) -> None:
    for target in TARGETS:
        content = _library(bundle, target).read_bytes()
        assert b"__global__" not in content
        assert b"/tmp" not in content and str(bundle.path).encode() not in content


@needs_nvcc
def test_needs_no_cuda_library(bundle: Bundle) -> None:
    command = ["readelf", "-dW", _library(bundle, "cuda:sm_100")]
    dynamic = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
    assert needed
    assert all(name.startswith(("libc.", "libdl.", "libpthread.", "ld-linux")) for name in needed), needed


@needs_nvcc
def test_the_same_bytes_again(bundle: Bundle, tmp_path: Path) -> None:
    compile_problem(parse_signature(SIGNATURE), Target.parse("cuda:sm_100"), tmp_path / "again.so")
    assert (tmp_path / "again.so").read_bytes() == _library(bundle, "cuda:sm_100").read_bytes()


@needs_nvcc
def test_manifest(bundle: Bundle) -> None:
    assert bundle.targets["cuda:sm_80,sm_90"].kind == "cuda"
    assert bundle.targets["cuda:sm_80,sm_90"].features == ("sm_80", "sm_90")
    assert set(bundle.targets) == {*TARGETS, CPU}
    files = {entry.target: entry.file for entry in bundle.entries}
    assert files["cuda:sm_80,sm_90"] == f"cuda-sm_80-sm_90/{SIGNATURE}.so"
    assert files["cuda:sm_100"] == f"cuda-sm_100/{SIGNATURE}.so"


@needs_nvcc
def test_the_commands_know_it(bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", str(bundle.path), "--json"]) == 0
    listed = {each["target"]: each for each in json.loads(capsys.readouterr().out)}
    assert set(listed) == {*TARGETS, CPU}
    assert cli.main(["explain", SIGNATURE, str(bundle.path), "--json"]) == 0
    assert {each["target"] for each in json.loads(capsys.readouterr().out)["variants"]} == {*TARGETS, CPU}
    verdicts = {each.target: each for each in verify(bundle.path)}
    assert verdicts[CPU].status == "right"
    for target in TARGETS:
        # Right where there is a GPU for it; skipped with the reason elsewhere.
        assert (verdicts[target].status == "skipped") == (listed[target]["obstacle"] is not None)


def test_no_nvcc_is_said_before_anything_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> list[str]:
        raise ToolchainError("there is no nvcc")

    monkeypatch.setattr("tvmconv.lowering.cuda.nvcc.nvcc_paths", none)
    monkeypatch.setattr(builder, "attempt", None)
    with pytest.raises(ToolchainError, match="there is no nvcc"):
        builder.build([parse_signature(SIGNATURE)], tmp_path / "b", [CPU, "cuda:sm_90"])
    assert list(tmp_path.iterdir()) == []


@needs_nvcc
def test_env_names_nvcc(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert nvcc_paths()[0] in facts["nvcc"]
    assert facts["GPUs"]
