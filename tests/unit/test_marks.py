"""What a run says of tests that this machine cannot run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"


def test_skipped_tests_of_features_are_counted_and_skipped_files_are_not(tmp_path: Path) -> None:
    shutil.copy(CONFTEST, tmp_path)
    (tmp_path / "test_file.py").write_text('import pytest\npytest.importorskip("a_package_that_is_not_there")\n')
    marked = 'import pytest\n\n\n@pytest.mark.isa("no_such_feature")\ndef test_marked():\n    assert False\n'
    (tmp_path / "test_marked.py").write_text(marked)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {CONFTEST.parent}\nmarkers = isa: needs features\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 skipped" in done.stdout
    assert "not tested: 1 tests of no_such_feature, which this CPU lacks" in done.stdout
