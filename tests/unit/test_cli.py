"""The command line's frame, `sig` and `env`: no compiler, no bundle."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tvmconv import cli
from tvmconv.__main__ import main as run_script
from tvmconv.cli.compare import _calls
from tvmconv.cli.output import print_json
from tvmconv.epilogue import format_epilogue
from tvmconv.errors import (
    CompilationError,
    KernelNotFoundError,
    TargetError,
    TvmconvWarning,
    VerificationError,
    missing_extra,
)
from tvmconv.signature import parse_signature

SIGNATURE = "conv2d-n1-i64x56x56-o64x56x56-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"
CONVOLUTION = ["sig", "convolution", "--data", "1x56x56x64", "--filter", "3x3x64x64"]
DENSE = ["--strides", "1x1", "--dilations", "1x1"]


def test_sig_resolves_a_convolution(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*CONVOLUTION, *DENSE, "--auto-pad", "SAME_upper"]) == 0
    assert capsys.readouterr().out == SIGNATURE + "\n"


def test_the_package_is_the_command() -> None:
    command = [sys.executable, "-m", "tvmconv", *CONVOLUTION, *DENSE, "--auto-pad", "same_upper"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == SIGNATURE + "\n"


def test_sig_passes_every_attribute_on(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "sig", "convolution_backprop_data", "--data", "2x8x5x7", "--filter", "8x3x3x4", "--strides", "2x3", "--dilations", "1x2",
        "--groups", "2", "--data-format", "NCX", "--weights-format", "OIX", "--dtype", "bf16", "--bias",
        "--auto-pad", "same_upper", "--same-rule", "attribute_text", "--output-shape", "10x20", "--output-padding", "1x0",
        "--epilogue", "add-clip(0,6)",
    ]  # fmt: skip
    assert cli.main([*arguments, "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    problem = parse_signature(facts["signature"])
    assert facts["out_spatial"] == [10, 20] and facts["groups"] == 2 and facts["bias"] and facts["dtype"] == "bf16"
    assert facts["epilogue"] == "add-clip_0_6" == format_epilogue(problem.epilogue)
    assert problem.out_channels == 6 and problem.data_format == "NCX" and problem.filter_format == "OIX"
    # The sum of both pads is s*(X-1) + KE - Y + op: 2*4+3-10+1 = 2 and 3*6+7-20+0 = 5, the odd one at the end.
    assert problem.pads_begin == (1, 2)


def test_sig_explains_a_signature(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sig", SIGNATURE]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert rows["output_shape"] == "1x56x56x64"
    assert rows["flops"] == str(2 * 56 * 56 * 64 * 64 * 9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sig", "convolve"], ["convolve", "is not a signature"]),
        (["sig", SIGNATURE, "--strides", "2x2"], ["--strides", "leave the options out"]),
        (CONVOLUTION, ["--strides is missing"]),
        ([*CONVOLUTION, *DENSE], ["pads_begin is missing"]),
        ([*CONVOLUTION, *DENSE, "--auto-pad", "half"], ["auto_pad", "half", "same_upper"]),
        ([*CONVOLUTION, *DENSE, "--auto-pad", "valid", "--output-shape", "3x3"], ["--output-shape"]),
        ([*CONVOLUTION, "--strides", "0x1", "--dilations", "1x1", "--auto-pad", "valid"], ["strides", "0", "at least 1"]),
        ([*CONVOLUTION, "--strides", "1", "--dilations", "1x1", "--auto-pad", "valid"], ["strides", "2 are needed"]),
        ([*CONVOLUTION, *DENSE, "--pads-begin=-1x0", "--pads-end", "0x0"], ["pads_begin", "-1"]),
        ([*CONVOLUTION, *DENSE, "--auto-pad", "valid", "--same-rule", "attribute_text"], ["same_rule"]),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("tvmconv sig: ") and "Traceback" not in err
    assert all(word in err for word in words)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["sig"],
        ["sig", "convolution", "--data", "1xx2"],
        ["sig", "convolution", "--data", "1,2"],
        ["sig", "convolution", "--groups", "0"],
        ["sig", "convolution", "--groups", "\u0661"],
        ["sig", "convolution", "--dtype", "f64"],
        ["build"],
        ["build", "x.onnx"],
        ["build", "x.onnx", "-o", "x", "--trials", "-1"],
        ["build", "x.onnx", "-o", "x", "--seconds", "nan"],
        ["build", "x.onnx", "-o", "x", "--jobs", "0"],
        ["bench", "x", "--threads", "9999999"],
        ["report", "x", "-o", "x", "--threads", "9999999"],
        ["run", "x.so", "--threads", "9999999"],
    ],
)
def test_bad_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    assert exit_.value.code == 2
    assert "usage: tvmconv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["compil"], "did you mean compile?"),
        (["compile", "x.onnx", "--ouput", "x.so"], "unrecognized arguments: --ouput; did you mean --output?"),
        (["compile", "x.onnx", "-o", "x.so", "--math=strikt"], "did you mean strict?"),
        (["compile", "x.onnx", "-o", "x.so", "--shape", "1,3,8,8"], "write x between extents: 1x3x8x8"),
        ([], "tvmconv compile model.onnx -o model.so"),
    ],
)
def test_bad_usage_is_told_what_was_meant(
    arguments: list[str], advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        cli.main(arguments)
    assert advice in capsys.readouterr().err


def test_a_model_is_compiled_before_it_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a b.onnx").write_bytes(bytes(1000))
    assert cli.main(["run", str(tmp_path / "a b.onnx")]) == 2
    assert f"is a model; first: tvmconv compile '{tmp_path}/a b.onnx'" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["tune", "x.onnx", "--records"], ["run", "x.so", "--output"], ["report", "x.so", "--output"]]
)
def test_a_folder_that_is_read_only_is_refused_before_anything_is_computed(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cli.main([*command, str(tmp_path / "new")]) == 2
    assert f"{tmp_path} is read-only for this user" in capsys.readouterr().err


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_shows_an_example(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as exit_:
        cli.main([command, "--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert f"example:\n  tvmconv {command}" in out
    assert not [line for line in out.splitlines() if len(line) > 80 and not line.startswith("  ")]


def test_help_documents_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert cli.EXIT_CODES in out and all(f"    {command}" in out for command in cli.COMMANDS)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (VerificationError("wrong"), 1),
        (KernelNotFoundError("none"), 1),
        (CompilationError("it does not"), 1),
        (TargetError("what"), 2),
        (FileNotFoundError(2, "No such file", "x"), 2),
        (missing_extra("compile", "tvm"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_errors_have_exit_codes(
    error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: object) -> int:
        raise error

    monkeypatch.setattr("tvmconv.cli.env.run", run)
    assert cli.main(["env"]) == code
    assert capsys.readouterr().err.startswith("tvmconv env: ")


def test_what_the_system_refuses_is_said_without_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(text: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/models/b")

    monkeypatch.setattr("tvmconv.cli.sig.parse_signature", refused)
    assert cli.main(["sig", SIGNATURE]) == 2
    assert capsys.readouterr().err == "tvmconv sig: /models/b: Permission denied\n"


def test_env_says_what_a_bug_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["env", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["numpy"] and facts["tvmconv"] and facts["logical cpus"] == os.cpu_count()
    assert facts["huge pages"] in ("always", "madvise", "never")
    assert cli.main(["env"]) == 0
    assert "cpu features" in capsys.readouterr().out


def test_ctrl_c_while_modules_are_imported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "torch", None)  # as main does, until this test ends
    monkeypatch.setattr(cli, "be_alone", lambda: None)
    monkeypatch.setattr(cli, "spare_time", lambda: None)
    monkeypatch.setattr(cli, "parser", interrupt)
    assert run_script() == 130
    assert capsys.readouterr().err == "tvmconv: interrupted\n"


def test_a_reader_that_goes_away_is_no_error() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-c", "import sys; from tvmconv.cli import main; sys.exit(main())", "sig", SIGNATURE]
    done = subprocess.run(command, stdout=write_end, stderr=subprocess.PIPE, check=False)
    os.close(write_end)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_closed_stdout_or_stderr_is_no_error() -> None:
    command = [sys.executable, "-c", "from tvmconv.cli import main; raise SystemExit(main())", "sig"]
    good, bad = "conv1d-n1-i4x8-o4x6-k3-s1-d1-p0_0-g1-NXC-XIO-f32", "conv1d"
    for close, signature, code in ((1, good, 0), (2, good, 0), (2, bad, 2), (1, bad, 2)):
        done = subprocess.run(
            [*command, signature], capture_output=True, preexec_fn=partial(os.close, close), check=False
        )
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
        assert bool(done.stdout) == (close == 2 and code == 0)


@pytest.mark.parametrize("arguments", [["sig", SIGNATURE], ["env"]])
def test_light_commands_never_import_the_compiler(arguments: list[str]) -> None:
    script = (
        "import sys; from tvmconv.cli import main; main(sys.argv[1:]); "
        "sys.exit(any(name in sys.modules for name in ('tvm', 'torch', 'onnx', 'rich')))"
    )
    subprocess.run([sys.executable, "-c", script, *arguments], stdout=subprocess.DEVNULL, check=True)


def test_json_is_strict(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": [float("nan"), 1.5, (float("-inf"),)], "b": "NaN"})
    out = capsys.readouterr().out
    assert json.loads(out, parse_constant=pytest.fail) == {"a": [None, 1.5, [None]], "b": "NaN"}


def test_random_inputs_of_several_calls_are_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    inputs = [SimpleNamespace(name=name, shape=(2,), dtype="float32") for name in ("x", "y")]
    made = {each.name: np.zeros(2, np.float32) for each in inputs}
    network = SimpleNamespace(inputs=inputs, random_inputs=lambda shapes: dict(made))
    assert len(list(_calls(network, {"x": np.ones((3, 2), np.float32)}))) == 3  # type: ignore[arg-type]
    assert capsys.readouterr().err.count("random inputs") == 1


def test_a_network_of_named_sizes_is_explained_with_their_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"name": name, "signature": name, "algorithm": "direct", "why": None} for name in ("any", "fixed")]
    told = SimpleNamespace(description={"report": rows[:1], "sizes": [{"report": rows[1:]}]})
    monkeypatch.setattr("tvmconv.runtime.networks.file.read_file", lambda path: told)
    path = tmp_path / "network.so"
    path.touch()
    assert cli.main(["explain", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["convolutions"] == rows


def test_an_output_that_cannot_be_written_is_refused_before_anything_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["compile", "m.onnx"], ["run", "m.so"]):
        assert cli.main([*command, "--output", str(tmp_path)]) == 2
        assert "is a folder; give the name of a file in it" in capsys.readouterr().err
        assert cli.main([*command, "--output", str(tmp_path / "none" / "file")]) == 2
        assert f"there is no folder {tmp_path / 'none'}; make it first" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["compile", "run", "report", "export-onnxruntime"])
def test_an_output_replaces_nothing_that_is_read(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, link = tmp_path / "model.onnx", tmp_path / "link.onnx"
    file.write_bytes(b"model")
    link.symlink_to(file)
    for output in (file, link):
        assert cli.main([command, str(file), "--output", str(output)]) == 2
        assert f"--output {output} is a file that this command reads; name another" in capsys.readouterr().err
    assert file.read_bytes() == b"model"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compile", "modle.onnx", "-o", "m.so"], "there is no file 'modle.onnx'; did you mean 'model.onnx'?"),
        (["run", "m.so", "--bench", "--against", "m.so"], "tvmconv compare compares two networks"),
        (["run", "m.so", "--bench", "--against", "m.onnx"], "--against: there is no file m.onnx"),
        (["bench", "none"], "is not a bundle"),
        (["explain", "none.so"], "tvmconv explain: there is no file '"),
        (["export-onnxruntime", "none.onnx", "-o", "p.so"], ": there is no file 'none.onnx'"),
    ],
)
def test_files_that_are_missing_are_named_at_once(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").touch()
    monkeypatch.setattr("tvmconv.measuring.peak.measure", lambda threads: pytest.fail("measured"))
    assert cli.main(arguments) == 2
    assert words in capsys.readouterr().err


def test_run_writes_no_outputs_of_a_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", "m.so", "--bench", "--output", str(tmp_path / "answers.npz")]) == 2
    assert "--bench prints times, and --output is for outputs; leave one of them out" in capsys.readouterr().err


def test_run_shows_outputs_without_elements(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Network:
        inputs = ()

        def random_inputs(self, shapes: object = None) -> dict[str, np.ndarray]:
            return {}

        def __call__(self) -> dict[str, np.ndarray]:
            return {"boxes": np.empty((0, 4), np.float32), "scores": np.array([0.5, 1.5], np.float32)}

    monkeypatch.setattr("tvmconv.runtime.networks.network.load_network", lambda path: Network())
    assert cli.main(["run", "m.so"]) == 0
    header, boxes, scores = (line.split() for line in capsys.readouterr().out.splitlines())
    assert header[3:] == ["min", "max", "mean"] and boxes == ["boxes", "0x4", "float32", "-", "-", "-"]
    assert scores[3:] == ["0.5", "1.5", "1"]
    assert cli.main(["run", "m.so", "--json"]) == 0
    assert "min" not in json.loads(capsys.readouterr().out)[0]


def test_a_warning_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        cli._show_warnings("tune")
        for line in (1, 1, 2):
            warnings.warn(f"line {line} is ignored", TvmconvWarning, stacklevel=1)
    assert capsys.readouterr().err == (
        "tvmconv tune: warning: line 1 is ignored\ntvmconv tune: warning: line 2 is ignored\n"
    )


@pytest.mark.parametrize("command", ["build", "run", "explain", "sig"])
def test_unknown_options_show_the_commands_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = {"build": ["a.onnx", "-o", "b"], "explain": ["a", "b"], "sig": ["a"]}.get(command, ["a.so"])
    with pytest.raises(SystemExit):
        cli.main([command, *given, "--nonsense"])
    err = capsys.readouterr().err
    assert f"usage: tvmconv {command} " in err and "--nonsense" in err


@pytest.mark.parametrize("command", [["bench"], ["list"], ["verify"], ["report", "-o", "report.html"]])
def test_files_that_are_no_bundle(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "network.so"
    file.write_bytes(b"none")
    assert cli.main([command[0], str(file), *command[1:]]) == 2
    err = capsys.readouterr().err
    assert "tvmconv run" in err or command[0] in ("verify", "report")
