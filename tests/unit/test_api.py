"""What `import tvmconv` gives: names that are imported when they are used."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import tvmconv
from tvmconv.building import options
from tvmconv.errors import InputError, MissingExtraError
from tvmconv.tuning.records import records_of

pytestmark = pytest.mark.smoke
SIGNATURE = "conv1d-n1-i1x64-o1x64-k1-s1-d1-p0_0-g1-NXC-XIO-f32"


def test_every_name_is_there_and_documented() -> None:
    for name in ("build", "load", "tune", "verify", "read_model", "explain", "Target", "Records"):
        assert name in tvmconv.__all__ and name in dir(tvmconv)
    for name in set(tvmconv.__all__) - {"__version__"}:
        assert inspect.getdoc(getattr(tvmconv, name)), name
    with pytest.raises(AttributeError, match="no attribute 'tuna'"):
        tvmconv.tuna  # noqa: B018


def test_the_import_brings_nothing_along() -> None:
    script = (
        "import sys; before = set(sys.modules); import tvmconv;"
        "print(*sorted(name for name in set(sys.modules) - before if '.' not in name or name.startswith('tvmconv')))"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {name for name in found if name.startswith("tvmconv")} == {"tvmconv", "tvmconv.version"}
    assert not {"numpy", "tvm", "tvm_ffi", "torch", "onnx"} & set(found)


def test_a_model_is_read_and_its_problems_are_what_build_takes() -> None:
    model = tvmconv.read_model(SIGNATURE)
    assert [node.problem for node in model.nodes] == [tvmconv.parse_signature(SIGNATURE)]


def test_build_has_the_options_of_each_purpose_and_no_others(tmp_path: Path) -> None:
    groups = (options.AlgorithmOptions, options.ScheduleOptions, options.CheckOptions, options.WorkOptions)
    names = [name for group in groups for name in group.__annotations__]
    assert sorted(names) == sorted(options.complete({})) and len(set(names)) == len(names)
    with pytest.raises(InputError, match="build has no option strict_build; it has math, network, room, sizes, trials"):
        tvmconv.build([tvmconv.parse_signature(SIGNATURE)], tmp_path / "b", strict_build=True)  # type: ignore[call-arg]


def test_records_are_a_folder_that_is_there(tmp_path: Path) -> None:
    assert records_of(str(tmp_path)).folder == tmp_path
    assert records_of(tmp_path / "new", written=True).folder == tmp_path / "new"
    given = records_of(None)
    assert records_of(given) is given
    with pytest.raises(InputError, match="there is no such folder"):
        records_of(tmp_path / "new")
    with pytest.raises(InputError, match="records is 5, a int"):
        records_of(5)  # type: ignore[arg-type]


def test_explain_needs_a_bundle() -> None:
    with pytest.raises(InputError, match="give the folder of at least one"):
        tvmconv.explain(SIGNATURE)


def test_a_target_without_the_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvmconv.targets.target.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install '.+\[compile\]'"):
        tvmconv.Target.parse("host")
    assert tvmconv.Target.parse("cuda:sm_90").kind == "cuda"
