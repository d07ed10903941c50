"""Finding kernels: variants, misses and their explanations, machines that lack features. No library is loaded."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from toys import entry, small_problem, write_bundle

import tvmconv
from tvmconv import cli
from tvmconv.errors import (
    BundleError,
    InputError,
    InvalidProblemError,
    KernelNotFoundError,
    SignatureError,
    UnsupportedMachineError,
)
from tvmconv.isa import Isa
from tvmconv.isa import machine as this_machine
from tvmconv.isa.aarch64 import ISA as AARCH64
from tvmconv.isa.x86 import ISA as ISA_X86
from tvmconv.runtime import selection
from tvmconv.runtime.bundle import Entry
from tvmconv.signature import format_signature

PROBLEM = small_problem()
SIGNATURE = format_signature(PROBLEM)
BATCH_3 = format_signature(small_problem(batch=3))
F16 = format_signature(small_problem("f16"))


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine with the features a, b and c."""
    monkeypatch.setattr(this_machine, "cpu_features", lambda: frozenset("abc"))


def test_mapping(tmp_path: Path) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE), entry(F16)])
    registry = tvmconv.load(tmp_path)
    assert len(registry) == 2
    assert sorted(registry) == sorted([SIGNATURE, F16])
    assert SIGNATURE in registry and PROBLEM in registry
    assert BATCH_3 not in registry and small_problem(batch=3) not in registry
    assert "nonsense" not in registry and 5 not in registry and [SIGNATURE] not in registry
    kernel = registry[SIGNATURE]
    assert kernel is registry.lookup(PROBLEM) is registry[SIGNATURE] is registry[PROBLEM]
    with pytest.raises(InputError, match="lookup takes a Problem"):
        registry.lookup(SIGNATURE)  # type: ignore[arg-type]
    assert kernel.problem == PROBLEM
    assert kernel.info.algorithm == "direct" and kernel.info.file == f"any/{SIGNATURE}.so"
    assert SIGNATURE in repr(kernel)


def test_empty_bundle(tmp_path: Path) -> None:
    write_bundle(tmp_path, [])
    registry = tvmconv.load(tmp_path)
    assert len(registry) == 0
    with pytest.raises(KernelNotFoundError, match="the bundle is empty"):
        registry.lookup(PROBLEM)


def test_a_signature_written_otherwise(tmp_path: Path) -> None:
    """A stride that is never taken is the same problem with every number."""
    single = small_problem(in_spatial=(3, 3), out_spatial=(1, 1), pads_begin=(0, 0), pads_end=(0, 0))
    write_bundle(tmp_path, [entry(format_signature(single))])
    written = format_signature(single).replace("-s1x1-", "-s5x5-")
    assert tvmconv.load(tmp_path)[written].problem == single


def test_miss_names_the_nearest_and_the_command(tmp_path: Path) -> None:
    path = tmp_path / "a bundle"
    write_bundle(path, [entry(F16), entry(BATCH_3), entry(format_signature(small_problem(bias=True, batch=9)))])
    with pytest.raises(KernelNotFoundError) as caught:
        tvmconv.load(path).lookup(PROBLEM)
    message = str(caught.value)
    assert SIGNATURE in message
    assert f"the nearest is {BATCH_3}, where batch is 3 instead of 2" in message
    command = f"tvmconv build {SIGNATURE} -o {shlex.quote(str(path))}"
    assert message.endswith(command) and "'" in command


@pytest.mark.parametrize("signature", ["", "conv2d", SIGNATURE + "-extra", "x" * 10_000, None, 5, [SIGNATURE]])
def test_bad_signature(tmp_path: Path, signature: object) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE)])
    with pytest.raises(SignatureError):
        tvmconv.load(tmp_path)[signature]  # type: ignore[index]


def test_nearest_prefers_the_operation_then_fewer_fields_then_closer_numbers(tmp_path: Path) -> None:
    backprop = format_signature(small_problem(batch=30)).replace("conv2d", "backprop2d")
    entries = [entry(format_signature(small_problem(batch=n))) for n in (1, 40)] + [entry(BATCH_3)]
    write_bundle(tmp_path, [*entries, entry(backprop)])
    explanation = tvmconv.load(tmp_path).explain(small_problem(batch=30))
    assert explanation.nearest == format_signature(small_problem(batch=40))
    assert [(d.field, d.asked, d.nearest) for d in explanation.differences] == [("batch", 30, 40)]
    assert not explanation.found and explanation.variants == ()


VARIANTS = [
    # the entries (target, origin, seconds), which is taken, and why the first of the others is not
    ([("narrow", "default", None), ("wide", "default", None)], "wide", "it uses 3 CPU features, this one 1"),
    ([("narrow", "tuned", 1e-9), ("wide", "default", None)], "wide", "it uses 3 CPU features, this one 1"),
    ([("wide", "default", None), ("other", "tuned", None)], "other", "it is tuned for this problem"),
    ([("wide", "default", None), ("other", "transferred", None)], "other", "it is tuned for a problem like this"),
    ([("wide", "tuned", 2e-3), ("other", "tuned", 1e-3)], "other", "it was measured faster"),
    ([("lacking", "tuned", 1e-9), ("narrow", "default", None)], "narrow", "this machine's CPU lacks x, y"),
    ([("gpu", "tuned", 1e-9), ("narrow", "default", None)], "narrow", "it is for 'rocm' devices"),
]
TARGETS = {"narrow": "a", "wide": "abc", "other": "abc", "lacking": "abcxy"}


@pytest.mark.parametrize(("entries", "taken", "reason"), VARIANTS, ids=range(len(VARIANTS)))
def test_variants(tmp_path: Path, entries: list[tuple[str, str, float | None]], taken: str, reason: str) -> None:
    made = [
        entry(SIGNATURE, t, origin=o, measured=s and {"seconds": s, "machine": "m", "trials": 1}) for t, o, s in entries
    ]
    write_bundle(tmp_path, made, **TARGETS, gpu=())
    manifest = tmp_path / "manifest.json"
    manifest.write_text(re.sub(r'("gpu": \{\s*"kind": )"cpu"', r'\1"rocm"', manifest.read_text()))
    registry = tvmconv.load(tmp_path)
    assert registry[SIGNATURE].info.target == taken
    explanation = registry.explain(SIGNATURE)
    assert explanation.found and explanation.command is None
    verdicts = {variant.target: variant for variant in explanation.variants}
    assert verdicts[taken].taken
    assert "this machine has the" in verdicts[taken].reason
    (rejected,) = (variant for variant in explanation.variants if not variant.taken)
    assert reason in rejected.reason


def test_of_equal_variants_the_earlier_bundle_is_taken(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_bundle(tmp_path / name, [entry(SIGNATURE), *([entry(F16)] if name == "two" else [])])
    registry = tvmconv.load(tmp_path / "two", tmp_path / "one")
    assert len(registry) == 2
    first, second = registry.explain(SIGNATURE).variants
    assert (first.bundle, first.taken) == (str(tmp_path / "two"), True)
    assert (second.bundle, second.taken) == (str(tmp_path / "one"), False)
    assert "it comes first" in second.reason


def test_bundle_for_other_machines_is_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE, "one"), entry(F16, "two")], one="abx", two="yz", unused="a")
    with pytest.raises(UnsupportedMachineError) as caught:
        tvmconv.load(tmp_path)
    assert "for one, this machine's CPU lacks x; for two, this machine's CPU lacks y, z" in str(caught.value)
    assert isinstance(caught.value, BundleError)


def test_kernel_for_other_machines_is_a_miss_that_says_so(tmp_path: Path) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE, "here"), entry(F16, "elsewhere")], here="a", elsewhere="ax")
    registry = tvmconv.load(tmp_path)
    assert list(registry) == [SIGNATURE]
    with pytest.raises(UnsupportedMachineError, match=r"elsewhere in .*lacks x.*add one with: tvmconv build"):
        registry[F16]


@pytest.mark.parametrize("threads", [0, -1, 1025, True, 1.0, "2"])
def test_bad_threads(tmp_path: Path, threads: object) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE)])
    with pytest.raises(InputError, match=r"threads is .*; it must be None or a number from 1 to 1024"):
        tvmconv.load(tmp_path, threads=threads)  # type: ignore[arg-type]


def test_a_model_that_is_no_text(tmp_path: Path) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE)])
    with pytest.raises(InputError, match=r"model is .* it must be a string"):
        tvmconv.load(tmp_path).node("first", model=[1])  # type: ignore[arg-type]


def test_no_path() -> None:
    with pytest.raises(InputError, match="no bundle was given"):
        tvmconv.load()


def test_bad_calls(tmp_path: Path) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE)])
    registry = tvmconv.load(tmp_path)
    data, taps = np.zeros((2, 9, 7, 19), np.float32), np.zeros((3, 3, 19, 21), np.float32)
    good = {"strides": (1, 1), "dilations": (1, 1), "auto_pad": "same_upper"}
    with pytest.raises(InputError, match="the types differ: data f32, filter f16; all must be the same"):
        registry.convolution(data, taps.astype(np.float16), **good)
    with pytest.raises(InputError, match="the types differ: data f32, filter f32, bias f16"):
        registry.convolution(data, taps, np.zeros(21, np.float16), **good)
    with pytest.raises(InputError, match="filter is a list"):
        registry.convolution(data, taps.tolist(), **good)
    with pytest.raises(InvalidProblemError, match="strides"):
        registry.convolution(data, taps, **{**good, "strides": (0, 1)})
    with pytest.raises(InvalidProblemError, match="data_format"):
        registry.convolution(data, taps, data_format="NHWC", **good)
    with pytest.raises(InvalidProblemError, match="bias has shape"):
        registry.convolution(data, taps, np.zeros(20, np.float32), **good)
    with pytest.raises(TypeError, match="strides"):
        registry.convolution(data, taps, dilations=(1, 1))  # type: ignore[call-arg]
    with pytest.raises(KernelNotFoundError, match=re.escape("bias is False instead of True")):
        registry.convolution(data, taps, np.zeros(21, np.float32), **good)


def test_lazy_exports() -> None:
    assert set(tvmconv.__all__) <= set(dir(tvmconv))
    assert tvmconv.reference.convolution is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        tvmconv.nothing  # noqa: B018


def batches(*numbers: int, **changes: object) -> list[Entry]:
    return [entry(format_signature(small_problem(batch=number, **changes))) for number in numbers]


SPLITS = [
    # batch, the kernels' batches, how it is split
    (17, (1, 8), "8 + 8 + 1"),
    (2, (1, 8), "1 + 1"),
    (6, (4, 3), "3 + 3"),  # the largest first leaves 2
    (14, (9, 7, 2), "7 + 7"),
    (33, (8, 3), "8 + 8 + 8 + 3 + 3 + 3"),
    (100, (8, 1), "12 x 8 + 4 x 1"),
    (10**6 + 1, (64, 9), "15617 x 64 + 57 x 9"),
    (0, (1, 8), "no call"),
    (3, (8, 0, 3, 1), None),  # it has its own
]


@pytest.mark.parametrize(("batch", "there", "split"), SPLITS)
def test_split_batches(tmp_path: Path, batch: int, there: tuple[int, ...], split: str | None) -> None:
    write_bundle(tmp_path, [*batches(*there), *batches(5, bias=True), entry(F16)])
    problem = small_problem(batch=batch)
    registry = tvmconv.load(tmp_path, split_batch=True)
    kernel = registry.lookup(problem, "cpu")
    assert kernel.problem == problem and registry[problem].info.signature == format_signature(problem)
    explanation = registry.explain(problem)
    assert explanation.found and explanation.split_batch
    assert [str(each) for each in explanation.splits] == ([] if split is None else [split])
    if split is not None:
        assert sum(part.batch * part.calls for part in explanation.splits[0].parts) == batch
        assert explanation.command is not None and explanation.nearest is not None
        with pytest.raises(KernelNotFoundError) as caught:
            tvmconv.load(tmp_path).lookup(problem)
        assert f"load(..., split_batch=True) serves it on this machine's CPU by calls for batch {split}." in str(
            caught.value
        )
        assert not tvmconv.load(tmp_path).explain(problem).found


def test_batches_that_do_not_add_up(tmp_path: Path) -> None:
    write_bundle(tmp_path, [*batches(4, 6), *batches(1, bias=True)])
    registry = tvmconv.load(tmp_path, split_batch=True)
    for batch in (2, 5, 7, 1001):
        problem = small_problem(batch=batch)
        with pytest.raises(KernelNotFoundError) as caught:
            registry.lookup(problem)
        said = f"batch {batch} is no sum of those that there are kernels for: 6, 4. Add it with: tvmconv build"
        assert said in str(caught.value) and "the nearest is" in str(caught.value)
        assert not registry.explain(problem).found and problem not in registry
    with pytest.raises(KernelNotFoundError, match=r"where batch is 6 instead of 8, dtype is f32 instead of f16"):
        registry.lookup(small_problem("f16", batch=8))


def test_a_batch_is_split_where_its_own_kernel_does_not_run(tmp_path: Path) -> None:
    (other,) = batches(2)
    elsewhere = entry(other.signature, "elsewhere")
    write_bundle(
        tmp_path, [elsewhere, entry(format_signature(small_problem(batch=1)), "here")], here="a", elsewhere="ax"
    )
    registry = tvmconv.load(tmp_path, split_batch=True)
    assert str(registry.explain(other.signature).splits[0]) == "1 + 1"
    assert registry[other.signature].info.target == "here"
    with pytest.raises(UnsupportedMachineError, match=r"lacks x\); load\(\.\.\., split_batch=True\) .*; add one with"):
        tvmconv.load(tmp_path)[other.signature]


@pytest.mark.parametrize("value", [None, 1, "yes"])
def test_bad_split_batch(tmp_path: Path, value: object) -> None:
    write_bundle(tmp_path, [entry(SIGNATURE)])
    with pytest.raises(InputError, match=r"split_batch is .*; it must be True or False"):
        tvmconv.load(tmp_path, split_batch=value)  # type: ignore[arg-type]


def test_explain_shows_the_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bundle(tmp_path, batches(1, 8))
    arguments = ["explain", format_signature(small_problem(batch=17)), str(tmp_path)]
    assert cli.main(arguments) == 1
    out = capsys.readouterr().out
    assert "this machine's CPU serves it by calls for batch 8 + 8 + 1, if it is loaded with split_batch=True" in out
    assert cli.main([*arguments, "--split-batch"]) == 0
    out = capsys.readouterr().out
    assert "this machine's CPU serves it by calls for batch 8 + 8 + 1" in out and "add it with: tvmconv build" in out
    assert cli.main([*arguments, "--split-batch", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["found"] and said["splits"][0]["obstacle"] is None
    assert [(part["batch"], part["calls"]) for part in said["splits"][0]["parts"]] == [(8, 2), (1, 1)]
    bundle = write_bundle(tmp_path / "even", batches(2, 8))
    arguments = ["explain", arguments[1], str(bundle.path), "--split-batch"]
    assert cli.main(arguments) == 1
    assert "batch 17 is no sum of those that there are kernels for: 8, 2" in capsys.readouterr().out
    assert cli.main(["explain", arguments[1], "--algorithms", "--split-batch"]) == 2
    assert "leave one of them out" in capsys.readouterr().err


X86 = ("avx2", "f16c", "fma")
N1, V1 = ("asimd", "asimdhp"), ("asimd", "asimdhp", "bf16")


@pytest.mark.parametrize(
    ("isa", "features", "taken", "refused"),
    [
        (AARCH64, N1, "neoverse-n1", {"neoverse-v1": "lacks bf16", "x86-64-v3": "it is for x86-64, and"}),
        (AARCH64, V1, "neoverse-v1", {"x86-64-v3": "it is for x86-64, and"}),
        (ISA_X86, X86, "x86-64-v3", {"neoverse-n1": "it is for aarch64, and", "neoverse-v1": "it is for aarch64, and"}),
    ],
)
def test_kernels_of_two_instruction_sets(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    isa: Isa,
    features: tuple[str, ...],
    taken: str,
    refused: dict[str, str],
) -> None:
    monkeypatch.setattr(this_machine, "cpu_features", lambda: frozenset(features))
    monkeypatch.setattr("tvmconv.isa.native", lambda: isa)
    targets = {"neoverse-n1": N1, "neoverse-v1": V1, "x86-64-v3": X86}
    bundle = write_bundle(tmp_path, [entry(SIGNATURE, target=target) for target in targets], **targets)
    assert tvmconv.load(tmp_path)[SIGNATURE].info.target == taken
    obstacles = {name: selection.obstacle(target) for name, target in bundle.targets.items()}
    assert {name for name, why in obstacles.items() if why} == set(refused)
    assert all(why in (obstacles[name] or "") for name, why in refused.items())
    write_bundle(tmp_path / "foreign", [entry(SIGNATURE, target=name) for name in refused], **targets)
    with pytest.raises(UnsupportedMachineError, match=next(iter(refused.values()))):
        tvmconv.load(tmp_path / "foreign")
