"""Files of an export: names, its test, CMake and pkg-config; and refusals."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from models import fixed, model, save, value
from onnx import helper
from toys import small_problem, write_bundle

from exporting.conftest import HERE, STRICT, needs_cmake, run
from tvmconv import cli, load
from tvmconv.errors import BundleError, InputError, TargetError
from tvmconv.exporting import CMAKE
from tvmconv.exporting.exporter import export_c
from tvmconv.exporting.header import quote
from tvmconv.exporting.names import kernel_name, tensor_name
from tvmconv.problem import Problem
from tvmconv.runtime.bundle import BundleTarget, read_bundle, write_manifest
from tvmconv.signature import parse_signature


@needs_cmake
def test_the_test_of_a_library_passes_and_fails(few_bundle: Path, tmp_path: Path) -> None:
    """With another answer stored, it fails."""
    library = export_c(few_bundle, tmp_path / "net", shared=True)
    build = tmp_path / "build"
    run("cmake", "-S", library, "-B", build)
    run("cmake", "--build", build)
    assert "100% tests passed" in run("ctest", "--test-dir", build)
    (build / "CMakeCache.txt").unlink()
    answers = library / "smoke-answers.h"
    text = answers.read_text()
    for changed in (re.sub(r", (\d+)ULL, 0\.0,", ", 1ULL, 0.0,", text), text.replace(", {", ", {1e6 + ")):
        assert changed != text
        answers.write_text(changed)
        run("cmake", "-S", library, "-B", build)
        run("cmake", "--build", build)
        with pytest.raises(AssertionError, match="1 tests failed"):
            run("ctest", "--test-dir", build)


def test_a_library_that_runs_nowhere_here_is_tested_as_far_as_known(
    few_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the reference."""
    monkeypatch.setattr("tvmconv.exporting.smoke.kernel_here", lambda bundle, entry: None)
    library = export_c(few_bundle, tmp_path / "net", "net")
    run("gcc", *STRICT, library / "smoke.c", library / "libnet.a", "-lm", "-o", tmp_path / "smoke")
    assert re.fullmatch(r"\d+ kernels, 0 wrong\n", run(tmp_path / "smoke"))


def test_pkg_config_finds_it(few_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    library = export_c(few_bundle, tmp_path / "tested", "tested", threads="pthreads")
    monkeypatch.setenv("PKG_CONFIG_PATH", str(library))
    flags = shlex.split(run("pkg-config", "--cflags", "--libs", "tested"))
    assert flags == [f"-I{library}", f"-L{library}", "-ltested", "-pthread"]


@needs_cmake
def test_cmake_builds_a_library_of_a_model(tmp_path: Path) -> None:
    """As add_halide_library: the kernels are built when the project is."""
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "v"], ["y"]),
    ]
    weights = [fixed("w", 8, 4, 3, 3), fixed("v", 4, 8, 1, 1)]
    Path(save(model(nodes, [value("x", (1, 4, 6, 6))], [value("y", None)], weights), tmp_path)).rename(
        tmp_path / "net.onnx"
    )
    (tmp_path / "main.c").write_text(
        '#include "net.h"\nint main(void) { return net_kernel_count == 2 && net_supported() ? 0 : 1; }\n'
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(use C)\nfind_package(tvmconv CONFIG REQUIRED)\n"
        "set(model ${CMAKE_CURRENT_BINARY_DIR}/generated.onnx)\n"
        "add_custom_command(OUTPUT ${model} COMMAND ${CMAKE_COMMAND} -E copy ${CMAKE_CURRENT_SOURCE_DIR}/net.onnx ${model})\n"
        "tvmconv_add_library(net MODEL net.onnx ${model} TARGETS x86-64-v3 THREADS pthreads BUILD_OPTIONS --jobs 1)\n"
        "add_executable(main main.c)\ntarget_link_libraries(main PRIVATE net)\n"
    )
    command = Path(sys.executable).parent / "tvmconv"
    run("cmake", "-S", tmp_path, "-B", tmp_path / "b", f"-Dtvmconv_DIR={CMAKE}", f"-DTVMCONV_EXECUTABLE={command}")
    run("cmake", "--build", tmp_path / "b")
    run(tmp_path / "b" / "main")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(use C)\nfind_package(tvmconv CONFIG REQUIRED)\ntvmconv_add_library(net)\n"
    )
    with pytest.raises(AssertionError, match="MODEL is missing"):
        run("cmake", "-S", tmp_path, "-B", tmp_path / "b")


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("conv2d-n1-i64x56x56-o128x28x28-k3x3-s2x2-d1x1-p1x1_0x0-g1-NXC-XIO-f32", "conv2d_64x56x56_128_3x3_s2"),
        ("conv1d-n2-i24x31-o64x29-k5-s1-d2-p3_3-g8-NXC-XIO-f32", "conv1d_n2_24x31_64_5_d2_p3_o29_g8"),
        (
            "conv2d-n1-i48x13x13-o80x13x13-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-OIX-bf16-bias",
            "conv2d_48x13x13_80_3x3_oix_bf16_bias",
        ),
        (
            "backprop2d-n1-i16x9x16-o4x18x32-k4x4-s2x2-d1x1-p1x1_1x1-g2-NCX-OIX-f16",
            "backprop2d_16x9x16_4_4x4_s2_g2_ncx_f16",
        ),
    ],
)
def test_kernels_have_short_names(signature: str, name: str) -> None:
    assert kernel_name(parse_signature(signature)) == name


def test_no_two_problems_have_one_name() -> None:
    base = parse_signature("conv2d-n1-i8x9x9-o8x5x5-k3x3-s2x2-d1x1-p1x1_1x1-g1-NXC-XIO-f32")
    found: dict[str, Problem] = {}
    for begin in (0, 1, 2):
        for extent in (4, 5, 6):
            for stride in (1, 2, (2, 1)):
                for epilogue in ("", "clip_0_6", "clip_0_7", "relu"):
                    strides = stride if isinstance(stride, tuple) else (stride, stride)
                    try:
                        problem = base.with_(
                            pads_begin=(begin, begin), pads_end=(9, 9), strides=strides, epilogue=epilogue or (),
                            out_spatial=tuple((9 + begin + 9 - 3) // s + 1 - 6 + extent for s in strides),
                        )  # fmt: skip
                    except ValueError:
                        continue
                    assert found.setdefault(kernel_name(problem), problem) == problem
    assert len(found) > 10


def test_texts_of_models_are_safe_in_c() -> None:
    assert tensor_name("///") == "tensor" and tensor_name("a.b") == "a_b"
    assert len(tensor_name("x" * 300)) < 100
    assert quote('a"\\?\n') == '"a\\042\\134\\077\\012"'


@pytest.mark.parametrize("name", ["", "9net", "a-b", "a b", "ünet", "_net", "x" * 65, "a/b", "net\n"])
def test_a_name_that_is_no_identifier_is_refused(name: str, few_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it must be a C identifier"):
        export_c(few_bundle, tmp_path / "out", name)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["runtime", "answers", "smoke", "table"])
def test_other_names_do_not_clash_with_the_librarys_own_files(name: str, few_bundle: Path, tmp_path: Path) -> None:
    library = export_c(few_bundle, tmp_path / "out", name)
    run("gcc", library / "smoke.c", library / f"lib{name}.a", "-lm", "-o", tmp_path / "smoke")
    run(tmp_path / "smoke")


def test_a_name_of_a_system_header_is_refused(few_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"name is 'math', but math\.h is a header of the system's"):
        export_c(few_bundle, tmp_path / "out", "math")


def test_a_bundle_whose_name_is_no_identifier_needs_another(few_bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "3 layers.bundle"
    shutil.copytree(few_bundle, copy)
    with pytest.raises(InputError, match=r"'3_layers'.*--name"):
        export_c(copy, tmp_path / "out")


def test_targets_that_are_not_there_are_refused(few_bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"target 'haswell' has no kernel in the bundle; .* has "):
        export_c(few_bundle, tmp_path / "out", targets=["haswell"])
    copy = tmp_path / "few.bundle"
    shutil.copytree(few_bundle, copy)
    bundle = read_bundle(copy)
    gpu = {name: BundleTarget("cuda", ("sm_90",)) for name in bundle.targets}
    write_manifest(replace(bundle, targets=gpu))
    with pytest.raises(BundleError, match="has no kernel for a CPU"):
        export_c(copy, tmp_path / "out", "few")
    future = {name: BundleTarget("cpu", ("avx2", "avx99")) for name in bundle.targets}
    write_manifest(replace(bundle, targets=future))
    with pytest.raises(TargetError, match="needs avx99"):
        export_c(copy, tmp_path / "out", "few")
    write_bundle(tmp_path / "empty", [])
    with pytest.raises(BundleError, match="has no kernel for a CPU, only for nothing"):
        export_c(tmp_path / "empty", tmp_path / "out", "few")


def test_a_bundle_of_before_says_how_to_build_it_again(few_bundle: Path, tmp_path: Path) -> None:
    copy = tmp_path / "few.bundle"
    shutil.copytree(few_bundle, copy)
    bundle = read_bundle(copy)
    entry = bundle.entries[0]
    run("objcopy", "--remove-section=.tvmconv.object", copy / entry.file)
    digest = hashlib.sha256((copy / entry.file).read_bytes()).hexdigest()
    write_manifest(replace(bundle, entries=(replace(entry, sha256=digest), *bundle.entries[1:])))
    with pytest.raises(BundleError, match=r"has no object to link from.*build .* again"):
        export_c(copy, tmp_path / "out")
    load(copy)[entry.signature]  # it can be called all the same
    for content, reason in ((b"no library", "it is no ELF file"), (b"\x7fELF" + bytes(60), "no object|not linked")):
        (copy / entry.file).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        write_manifest(replace(bundle, entries=(replace(entry, sha256=digest), *bundle.entries[1:])))
        with pytest.raises(BundleError, match=reason):
            export_c(copy, tmp_path / "out")
    (copy / entry.file).write_bytes(b"altered")
    with pytest.raises(BundleError, match="altered or damaged"):
        export_c(copy, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_only_an_export_is_replaced(few_bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "out"
    export_c(few_bundle, out)
    (out / "left over").touch()
    export_c(few_bundle, out)
    assert not (out / "left over").exists() and [path.name for path in out.parent.iterdir()] == ["out"]
    for other in (few_bundle, tmp_path / "file", tmp_path / "folder"):
        if other.name == "file":
            other.touch()
        if other.name == "folder":
            other.mkdir()
            (other / "mine").touch()
        with pytest.raises(BundleError, match="is not an export"):
            export_c(few_bundle, other)
    assert load(few_bundle)


def test_other_bad_input(few_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match="threads is 'tbb'; allowed: none, pthreads, openmp"):
        export_c(few_bundle, tmp_path / "out", threads="tbb")
    assert cli.main(["export-c", str(tmp_path / "absent"), "-o", str(tmp_path / "out")]) == cli.BAD_INPUT
    assert "is not a bundle" in capsys.readouterr().err
    assert cli.main(["export-c", str(few_bundle), "-o", str(tmp_path / "out"), "--name", "few"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "out")
    assert {"few.h", "libfew.a", "fewConfig.cmake", "few.pc", "smoke.c"} <= {
        p.name for p in (tmp_path / "out").iterdir()
    }


def test_the_same_bundle_gives_the_same_bytes(few_bundle: Path, tmp_path: Path) -> None:
    first, second = (export_c(few_bundle, tmp_path / name / "out", "few", shared=True) for name in ("a", "another"))
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name
        assert str(tmp_path).encode() not in path.read_bytes(), path.name


def test_small_problems_are_named_apart() -> None:
    names = {kernel_name(small_problem(dtype, bias)) for dtype in ("f32", "f16", "bf16") for bias in (False, True)}
    assert len(names) == 6 and HERE.is_dir()
