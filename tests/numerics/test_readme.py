"""The Python of README and docs runs as it stands, and their TOML is a file of problems."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tvmconv.frontends import read_source

ROOT = Path(__file__).parents[2]
# tvm-ffi would import it, which takes longer than all that is here; none of this needs it.
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None\n"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def test_python(tmp_path: Path) -> None:
    """In one folder, the README first: other pages go on with its bundle. What needs a GPU or a download is ``py``."""
    printed = {}
    for page in PAGES:
        if code := "".join(blocks(page, "python")):
            done = subprocess.run(
                [sys.executable, "-c", WITHOUT_TORCH + code], cwd=tmp_path, capture_output=True, text=True
            )
            assert done.returncode == 0, f"{page}:\n{done.stderr}"
            printed[page.name] = done.stdout
    assert printed.keys() == {"README.md", "bundles.md", "semantics.md"}
    assert printed["bundles.md"].startswith("winograd4 ") and printed["bundles.md"].endswith(" (1, 56, 56, 64)\n")


def test_toml(tmp_path: Path) -> None:
    (text,) = [block for page in PAGES for block in blocks(page, "toml")]
    (tmp_path / "problems.toml").write_text(text)
    assert [problem.op for problem in read_source(str(tmp_path / "problems.toml"))] == [
        "convolution",
        "convolution_backprop_data",
    ]
