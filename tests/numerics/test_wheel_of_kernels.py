"""`tvmconv export-wheel`: the wheel installs, imports, and calls what the bundle or network has, by name."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tvmconv
from tvmconv import cli
from tvmconv.errors import BundleError, InputError
from tvmconv.exporting.wheel import export_wheel
from tvmconv.fills import exact_case

ROOT = Path(__file__).parents[2]
OLD = ROOT / "tests/compatibility/v0.1.0"
CALLS = """
import sys
import numpy as np
import my_detector
arrays = dict(np.load(sys.argv[1]))
np.savez(sys.argv[2], **my_detector.run(**{name: arrays[name] for name in my_detector.INPUTS}))
assert "tvm" not in sys.modules
"""


def installed(wheel: Path, folder: Path) -> Path:
    """Install a wheel by pip, without what it needs, which is there."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel)], check=True)
    return folder


def test_a_bundle_is_imported_and_its_kernels_called(
    small_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = export_wheel(small_bundle, tmp_path, "small-kernels", "2.1")
    assert wheel.name.startswith("small_kernels-2.1-py3-none-linux_")
    monkeypatch.syspath_prepend(str(installed(wheel, tmp_path / "site")))
    import small_kernels

    assert sorted(tvmconv.load(small_bundle)) == small_kernels.SIGNATURES
    for signature in small_kernels.SIGNATURES:
        arrays, expected = exact_case(tvmconv.parse_signature(signature))
        assert np.array_equal(small_kernels.kernel(signature)(**arrays.given()), expected)


def test_the_record_has_the_digest_of_every_file(small_bundle: Path, tmp_path: Path) -> None:
    first, second = (export_wheel(small_bundle, tmp_path / each, "small") for each in "ab")
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        record = archive.read("small-1.0.dist-info/RECORD").decode()
        rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(record))}
        assert set(rows) == set(archive.namelist())
        for name, (digest, size) in rows.items():
            if digest:
                content = archive.read(name)
                right = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                assert (digest, size) == (f"sha256={right}", str(len(content)))


def test_a_network_is_imported_and_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tvm")
    library = tmp_path / "network.so"
    assert cli.main(["compile", str(OLD / "model.onnx"), "-o", str(library)]) == 0
    capsys.readouterr()
    assert cli.main(["export-wheel", str(library), "-o", str(tmp_path), "--name", "My.Detector"]) == 0
    wheel = Path(capsys.readouterr().out.strip())
    site = installed(wheel, tmp_path / "site")
    network = tvmconv.load_network(library)
    arrays = network.random_inputs()
    np.savez(tmp_path / "in.npz", **arrays)
    program = f"import sys; sys.path[:0] = [{str(site)!r}, {str(ROOT)!r}]; sys.modules['torch'] = None\n{CALLS}"
    files = [str(tmp_path / name) for name in ("in.npz", "out.npz")]
    subprocess.run([sys.executable, "-c", program, *files], check=True)
    got = np.load(tmp_path / "out.npz")
    assert {name: each.tobytes() for name, each in network(**arrays).items()} == {n: got[n].tobytes() for n in got}


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("-x", "1.0"),
        ("a b", "1.0"),
        (f"{'a' * 60} b", "1.0"),
        ("import", "1.0"),
        ("TVMconv", "1.0"),
        ("a", "1.0/2"),
        ("a", ""),
    ],
)
def test_names_and_versions_that_packaging_refuses(small_bundle: Path, tmp_path: Path, name: str, version: str) -> None:
    with pytest.raises(InputError):
        export_wheel(small_bundle, tmp_path, name, version)
    assert list(tmp_path.iterdir()) == []


def test_what_is_damaged_becomes_no_wheel(small_bundle: Path, tmp_path: Path) -> None:
    bundle, folder = tmp_path / "bundle", tmp_path / "wheels"
    shutil.copytree(small_bundle, bundle)
    folder.touch()
    with pytest.raises(InputError, match="wheels is not a folder; give"):
        export_wheel(bundle, folder, "a")
    folder.unlink()
    library = next(bundle.rglob("*.so"))
    library.write_bytes(library.read_bytes()[:-1])
    with pytest.raises(BundleError, match="has sha256"):
        export_wheel(bundle, folder, "a")
    assert not folder.exists()
