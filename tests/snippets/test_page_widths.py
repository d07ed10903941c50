"""Widths of the site's pages and of reports, on a monitor and a telephone: nothing is cut or scrolls sideways."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from models import fixed, model, save, value
from onnx import helper

from benchmarks.browser import CHROMIUM, visit
from tests.snippets.blocks import ROOT
from tvmconv import cli

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None or find_spec("mkdocs") is None, reason="no Chromium, or no MkDocs"),
]
WIDTHS = (1280, 390)
# Of each page: what is wider than the window, and boxes of the text that hide or scroll a part of what they hold.
PAGE = """
<script type="module">
  const wide = [];
  for (const width of WIDTHS)
    for (const page of PAGES) {
      const frame = document.createElement("iframe");
      frame.style.cssText = `width: ${width}px; height: 800px; border: 0`;
      frame.src = page;
      await new Promise((loaded) => { frame.onload = loaded; document.body.append(frame); });
      await new Promise((drawn) => setTimeout(drawn, 100));
      const shown = frame.contentDocument;
      if (shown.scrollingElement.scrollWidth > width) wide.push(`${page} at ${width} pixels`);
      for (const box of (shown.querySelector("article") ?? shown.body).querySelectorAll("*"))
        if (box.clientWidth && box.scrollWidth > box.clientWidth + 1 && getComputedStyle(box).overflowX !== "visible")
          wide.push(`${page} at ${width} pixels: ${box.tagName} ${box.textContent.trim().slice(0, 60)}`);
      frame.remove();
    }
  await fetch("/", { method: "POST", body: JSON.stringify({ wide }) });
</script>
"""


def wide(folder: Path) -> list[str]:
    """Return what is cut or scrolls on the pages of a folder."""
    pages = sorted(each.relative_to(folder).as_posix() for each in folder.rglob("*.html"))
    (folder / "widths.html").write_text(PAGE.replace("WIDTHS", str(list(WIDTHS))).replace("PAGES", json.dumps(pages)))
    return visit(folder, "widths.html", limit=600)["wide"]


def test_pages_of_the_site(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", tmp_path]
    subprocess.run(command, cwd=ROOT, check=True)
    assert len(list(tmp_path.rglob("*.html"))) > 40
    assert wide(tmp_path) == []


def test_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Softmax", ["c"], ["y"])]
    file = save(model(nodes, [value("x", (1, 32, 28, 28))], weights=[fixed("w", 32, 32, 3, 3)]), tmp_path)
    (tmp_path / "pages").mkdir()
    assert cli.main(["build", file, "-o", "model.bundle"]) == 0
    assert cli.main(["compile", file, "-o", "network-with-a-long-name.so"]) == 0
    for made in ("model.bundle", "network-with-a-long-name.so"):
        assert cli.main(["report", made, "-o", f"pages/{made}.html"]) == 0
    assert wide(tmp_path / "pages") == []
