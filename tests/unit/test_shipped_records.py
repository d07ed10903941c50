"""Every record that ships still means a schedule."""

import json
from pathlib import Path

import pytest

from tvmconv.errors import ReplayError
from tvmconv.signature import parse_signature
from tvmconv.targets.target import Target
from tvmconv.tuning.records import parse_record, shipped_folder
from tvmconv.tuning.replay import choice_of

FOLDERS = sorted(file.parent for file in shipped_folder().glob("*/records.jsonl"))


@pytest.mark.slow
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_records_that_ship_replay(folder: Path) -> None:
    lost = []
    for line in (folder / "records.jsonl").read_text().splitlines():
        described = json.loads(line)
        record = parse_record(described, described["target"])
        assert Target.parse(record.target).folder == folder.name
        try:
            choice_of(parse_signature(record.signature), Target.parse(record.target), record.candidate)
        except ReplayError as error:
            lost.append(f"{record.signature} {record.algorithm}: {error}")
    assert not lost
