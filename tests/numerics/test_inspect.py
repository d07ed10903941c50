"""`tvmconv inspect`, every stage of it, and `tvmconv explain --algorithms`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tvmconv import cli
from tvmconv.algorithms import table
from tvmconv.errors import TvmconvError
from tvmconv.lowering.compiler import Choice
from tvmconv.lowering.cpu.passes import PASSES
from tvmconv.lowering.stages import show
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Record, Records

DENSE = "conv2d-n1-i16x9x9-o32x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
FAMILY = "conv2d-n?-i16x?x?-o32x?x?-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
DEPTHWISE = "conv2d-n1-i16x9x9-o16x9x9-k3x3-s1x1-d1x1-p1x1_1x1-g16-NXC-XIO-f32"
HALF = "conv2d-n1-i64x14x14-o64x14x14-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f16"


@pytest.fixture(autouse=True)
def no_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the folder of the user's records, which has none."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    return tmp_path / "tvmconv"


def inspected(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """Return what `tvmconv inspect` prints and says."""
    assert cli.main(["inspect", *arguments]) == 0
    out, err = capsys.readouterr()
    return out, err


def refused(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    """Return the error that a command prints, and nothing else."""
    assert cli.main([*arguments]) == code
    out, err = capsys.readouterr()
    assert out == "" and "Traceback" not in err
    return err


def test_the_stages_of_a_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = (DENSE, "--target", "x86-64-v3", "--algorithm", "direct")
    expressions, said = inspected(capsys, *kernel, "--stage", "te")
    assert said == "direct, sketch 0, default choices, for x86-64-v3\n"
    assert 'with T.sblock("acc0")' in expressions and "T.parallel" not in expressions
    loops, _ = inspected(capsys, *kernel, "--stage", "tir")
    assert "def tvmconv_kernel(" in loops and "T.parallel" in loops and "T.sblock" not in loops
    intermediate, _ = inspected(capsys, *kernel, "--stage", "llvm")
    assert "define dllexport i32 @__tvm_ffi_tvmconv_kernel(" in intermediate and "fmuladd" in intermediate
    code, _ = inspected(capsys, *kernel, "--stage", "asm")
    # A tile of 3 pixels by 4 vectors of 8 channels, 4 channels a pass.
    assert code.startswith("# hot loop of tvmconv_packed: 48 multiply-adds into 12 sums, ")
    lines = code.splitlines()
    assert lines.index("# all functions") > 48 and lines.count(lines[1]) == 2


def test_a_kernel_after_each_pass(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = (DENSE, "--target", "x86-64-v3", "--algorithm", "direct")
    shown = {each.name: inspected(capsys, *kernel, "--stage", each.name)[0] for each in PASSES}
    assert "T.sblock" in shown["LowerMatchBuffer"] and "T.sblock" not in shown["LowerOpaqueBlock"]
    assert "tvmconv.skip" in shown["columns"] and "tvmconv.skip" not in shown["padding"]
    assert "def main(" in shown["split"] and "def tvmconv_pack(" in shown["bind"]
    # What is asked of a function is asked once.
    assert "tvmconv.quotients" in shown["bind"] and "tvmconv.quotients" not in shown["quotients"]
    loops = [line for line in inspected(capsys, *kernel, "--stage", "tir")[0].splitlines() if "T.vectorized" in line]
    assert loops and set(loops) <= set(shown["check"].splitlines())
    assert "T.vectorized" in shown["NarrowDataType"] and "T.vectorized" not in shown["VectorizeLoop"]
    assert "__tvm_ffi_tvmconv_kernel" in shown["MakePackedAPI"]


def test_the_list_of_passes(capsys: pytest.CaptureFixture[str]) -> None:
    lines = inspected(capsys, DENSE, "--target", "x86-64-v3", "--algorithm", "direct", "--stage", "passes")[
        0
    ].splitlines()
    (padding,) = (number for number, line in enumerate(lines) if line.startswith("* padding "))
    assert "tvmconv.skip" in lines[padding]
    assert lines[padding + 1] == "      after columns: a copy's conditions on columns still stand together"
    assert any(line.startswith("  tiles ") for line in lines), "AMX's tiles are marked, though nothing asks for them"
    every = [line for line in lines if line.startswith("* CanonicalizeLoop")]
    assert len(every) == 1 and every[0].endswith("every kernel")


def test_a_schedule_is_steps_with_names_and_choices(capsys: pytest.CaptureFixture[str]) -> None:
    steps, _ = inspected(capsys, DENSE, "--target", "x86-64-v3", "--algorithm", "direct", "--stage", "schedule")
    assert re.search(r"^ +choice 2: 3 of \[3, 1\]$", steps, re.MULTILINE)
    assert re.search(
        r"^acc0 +split i5\(9\), factors=\[None, 3 \(choice 2\)\] -> i5_0\(3\), i5_1\(3\)$", steps, re.MULTILINE
    )
    assert re.search(r"^data_pad0 +compute at data_pad0, acc0\.\w+fused\(\d+\)$", steps, re.MULTILINE)
    assert "sch." not in steps and not re.search(r"\b[bl]\d+\b", steps.replace("i", ""))
    # What is not default goes with it: other numbers, the same steps.
    other, said = inspected(
        capsys, DENSE, "--target", "x86-64-v3", "--algorithm", "direct", "--sketch", "1", "--stage", "schedule"
    )
    assert "sketch 1" in said and other != steps


def test_llvm_ir_in_a_schedule_is_cut_short(capsys: pytest.CaptureFixture[str]) -> None:
    steps, _ = inspected(
        capsys, DENSE.replace("f32", "bf16"), "--target", "znver4", "--algorithm", "dot", "--stage", "schedule"
    )
    assert max(map(len, steps.splitlines())) < 400 and "declare <" in steps


def test_both_functions_where_filters_packed_ahead_have_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = (DENSE.replace("i16x9x9-o32", "i512x9x9-o512"), "--target", "x86-64-v3", "--algorithm", "direct")
    for stage in ("te", "schedule"):
        text, _ = inspected(capsys, *kernel, "--stage", stage)
        assert text.startswith("# for filters as they are\n") and "\n# for prepacked filters\n" in text
    assert all(
        f"def tvmconv_{each}(" in inspected(capsys, *kernel, "--stage", "tir")[0] for each in ("kernel", "packed")
    )


def test_the_stages_of_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = (HALF, "--target", "cuda:sm_90")
    assert "# for filters" not in inspected(capsys, *kernel, "--stage", "te")[0]
    assert "bind " in inspected(capsys, *kernel, "--stage", "schedule")[0]
    assert 'T.launch_thread("blockIdx.x"' in inspected(capsys, *kernel, "--stage", "tir")[0]
    assert "__global__ void" in inspected(capsys, *kernel, "--stage", "cuda")[0]
    ours = (HALF, "--target", "cuda:sm_90a", "--algorithm", "wgmma")
    assert "wgmma" in inspected(capsys, *ours, "--stage", "cuda")[0]
    assert "handwritten CUDA C++; see --stage cuda" in refused(capsys, 2, "inspect", *ours, "--stage", "tir")


def test_a_record_is_what_is_shown(no_records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def record(sketch: int, *decisions: int) -> None:
        kept = Record(DENSE, "x86-64-v3", "direct", 1, sketch, decisions, 1e-6, 2e-6, 7, 0, "this", "2026-01-31", {})
        Records(no_records).put([kept])

    record(1, 1, 1, 1, 1, 1)
    steps, said = inspected(capsys, DENSE, "--target", "x86-64-v3", "--stage", "schedule")
    assert said == "direct, sketch 1, a tuning record's schedule, for x86-64-v3\n"
    assert "choice 2: 1 of [9, 3, 1]" in steps
    assert cli.main(["explain", DENSE, "--algorithms", "--target", "x86-64-v3"]) == 0
    (taken,) = (line for line in capsys.readouterr().out.splitlines() if "  taken  " in line)
    assert taken.startswith("direct ") and taken.endswith("a tuning record: 1.0 us, after 7 trials on this")
    # The default is then one that is possible.
    record(99)
    _, said = inspected(capsys, DENSE, "--target", "x86-64-v3", "--stage", "te")
    assert "the tuning record no longer fits: direct has" in said and "the default schedule" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--stage", "cuda", "--target", "x86-64-v3"], ["'cuda', which x86-64-v3 does not have", "te, schedule, passes, tir, llvm"]),
        (["--stage", "asm", "--target", "cuda:sm_90"], ["'asm', which cuda:sm_90 does not have", "cuda, sass"]),
        (["--stage", "padding", "--target", "cuda:sm_90"], ["'padding', which cuda:sm_90 does not have", "cuda, sass"]),
        (["--stage", "te", "--algorithm", "dot"], ["dot does not compute", "it multiplies bf16 and integers, not f32", "these do:", "direct"]),
        (["--stage", "te", "--algorithm", "cuda_fma"], ["it is for targets of the kind cuda"]),
        (["--stage", "te", "--algorithm", "fft"], ["algorithm is 'fft'; allowed: ", "winograd4"]),
        (["--stage", "asm", "--algorithm", "direct", "--sketch", "9"], ["sketches for this problem; there is no sketch 9"]),
        (["--stage", "te", "--target", "z80"], ["target is 'z80'"]),
    ],
)  # fmt: skip
def test_bad_input_of_inspect(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, 2, "inspect", DENSE, *arguments)
    assert all(word in said for word in words)


def test_a_stage_that_there_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    said = "does not have; allowed: te, schedule, passes, tir, llvm, asm, or one of the passes Canon"
    assert said in refused(capsys, 2, "inspect", DENSE, "--stage", "ptx")
    with pytest.raises(TvmconvError, match=said):
        show("ptx", parse_signature(DENSE), Target.parse("x86-64-v3"), Choice("direct"))


def test_a_schedule_that_does_not_compile_is_said_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("what TVM says\nInternalError: no")

    monkeypatch.setattr("tvmconv.lowering.cpu.kernels.lower", fail)
    said = refused(capsys, 1, "inspect", DENSE, "--stage", "tir", "--algorithm", "direct")
    assert "direct does not compile: RuntimeError: InternalError: no; tvmconv build would take the next" in said


def test_the_algorithms_of_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    problem, target = parse_signature(DENSE), Target.parse("x86-64-v3")
    assert cli.main(["explain", DENSE, "--algorithms", "--target", "x86-64-v3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    rows = {row["algorithm"]: row for row in told["algorithms"]}
    assert told["target"] == "x86-64-v3" and told["threads"] > 1
    assert list(rows) != sorted(rows) and set(rows) == {each.name for each in table.ALGORITHMS if each.kind == "cpu"}
    for each in (table.get(name) for name in rows):
        row, reason = rows[each.name], each.covers(problem, target)
        reason = reason or ("it is for --math reproducible" if each.ordered else None)
        assert row["covers"] == (reason is None)
        assert row["cycles"] == (None if reason else each.cycles(problem, target))
        assert reason is None or row["reason"] == reason
    taken = [name for name, row in rows.items() if row["taken"]]
    assert taken == [table.applicable(problem, target)[0].name] == [told["algorithms"][0]["algorithm"]]
    assert rows["plain"]["reason"] == "never the default"


def test_the_table_of_algorithms(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["explain", DENSE, "--algorithms", "--target", "x86-64-v3", "--math", "strict"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["algorithm", "class", "cycles", "verdict", "reason"]
    terms = lines[lines.index("") + 2 :]
    assert terms[0].split() == ["algorithm", "event", "count", "cycles", "each", "cycles"]
    cost = next(line.split()[2] for line in lines if line.startswith("direct "))
    assert sum(float(line.split()[4]) for line in terms if line.startswith("direct ")) == pytest.approx(
        float(cost), abs=5
    )
    lines = lines[: lines.index("")]
    assert sum("  taken  " in line for line in lines) == 1
    (refusal,) = (line for line in lines if line.startswith("winograd4 "))
    assert refusal.endswith("its results are of the class transform, which --math strict leaves out")
    assert cli.main(["explain", HALF, "--algorithms", "--target", "cuda:sm_90"]) == 0
    assert "tensorcore " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([DENSE], ["give the folder of a bundle", "--algorithms"]),
        ([DENSE, "a.bundle", "--target", "host"], ["--algorithms (with --target, --math, --records)"]),
        ([FAMILY], ["give the folder of a bundle"]),
        ([FAMILY, "a.bundle", "--algorithms"], ["--algorithms takes no bundle", "'a.bundle'"]),
        ([DENSE, "a.bundle", "--algorithms"], ["--algorithms takes no bundle", "'a.bundle'"]),
        (["conv2d", "--algorithms"], ["'conv2d' is not a signature"]),
        ([DENSE, "--algorithms", "--target", "z80"], ["target is 'z80'"]),
    ],
)
def test_bad_input_of_explain(arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    said = refused(capsys, 2, "explain", *arguments)
    assert all(word in said for word in words)
