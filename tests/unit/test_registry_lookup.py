"""Finding kernels: variants, misses and their explanations, machines that lack features. No library is loaded."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from toys import entry, small_problem, write_bundle

import tvmconv
from tvmconv import cpu
from tvmconv.errors import (
    BundleError,
    InputError,
    InvalidProblemError,
    KernelNotFoundError,
    SignatureError,
    UnsupportedMachineError,
)
from tvmconv.signature import format_signature

PROBLEM = small_problem()
SIGNATURE = format_signature(PROBLEM)
BATCH_3 = format_signature(small_problem(batch=3))
F16 = format_signature(small_problem("f16"))


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine with the features a, b and c."""
    monkeypatch.setattr(cpu, "cpu_features", lambda: frozenset("abc"))


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
