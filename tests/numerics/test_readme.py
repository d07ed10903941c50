"""The README's Python runs as it stands, and its TOML is a file of problems."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tvmconv.frontends import read_source

README = (Path(__file__).parents[2] / "README.md").read_text()


def test_python(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    (tmp_path / "example.py").write_text(code)
    done = subprocess.run([sys.executable, "example.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("winograd4 ") and done.stdout.endswith(" (1, 56, 56, 64)\n")


def test_toml(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    (tmp_path / "problems.toml").write_text(text)
    assert len(read_source(str(tmp_path / "problems.toml"))) == 1
