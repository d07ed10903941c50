"""A bundle of a problem that was never tuned, with the schedule of one that was."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tvmconv import build, load
from tvmconv.cli import main
from tvmconv.fills import exact_case
from tvmconv.runtime.bundle import read_bundle
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.records import Record, Records
from tvmconv.tuning.replay import spaces_of

TUNED = "conv2d-n1-i16x8x8-o32x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32-bias"
ASKED = "conv2d-n1-i16x8x8-o64x8x8-k3x3-s1x1-d1x1-p1x1_1x1-g1-NXC-XIO-f32"


def test_the_bundle_says_whose_schedule_it_took_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target, asked = Target.parse("host"), parse_signature(ASKED)
    (direct,) = (space for space in spaces_of(parse_signature(TUNED), target) if space.algorithm == "direct")
    other = tuple(options[0] for options in direct.sketches[0].options)
    assert other != direct.sketches[0].default
    record = Record(
        signature=TUNED, target=target.name, algorithm="direct", version=direct.version, sketch=0, decisions=other,
        seconds=1e-6, default_seconds=2e-6, trials=9, seed=0, machine="this", date="2026-01-31", tools={},
    )  # fmt: skip
    records = Records(tmp_path / "records")
    records.put([record])
    path = build([asked], tmp_path / "bundle", records=records, transfer=True)
    (entry,) = read_bundle(path).entries
    assert (entry.origin, entry.algorithm, entry.transferred_from, entry.measured) == (
        "transferred", "direct", TUNED, None,
    )  # fmt: skip
    arrays, expected = exact_case(asked)
    assert np.array_equal(load(path).lookup(asked)(*arrays), expected)
    assert main(["list", str(path)]) == 0
    assert "transferred" in capsys.readouterr().out
    assert main(["explain", ASKED, str(path)]) == 0
    assert f"was tuned for {TUNED}" in capsys.readouterr().out
    assert main(["explain", "--json", ASKED, str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["variants"][0]["transferred_from"] == TUNED
    # Not unless it is asked for; and bundles of earlier versions, which do not know of it, are read.
    (entry,) = read_bundle(build([asked], tmp_path / "default", records=records)).entries
    assert (entry.origin, entry.transferred_from) == ("default", None)
    manifest = tmp_path / "default" / "manifest.json"
    document = json.loads(manifest.read_text())
    del document["entries"][0]["transferred_from"]
    manifest.write_text(json.dumps(document))
    assert read_bundle(tmp_path / "default").entries == (entry,)
