"""Libraries that sessions of onnxruntime export from bundles: once in a process, and children leave them to it."""

from __future__ import annotations

from pathlib import Path

from toys import run_python

from tvmconv.runtime.bundle import MANIFEST

SCRIPT = """
import os, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tvmconv.exporting import provider_library
from tvmconv.onnxruntime import sessions

exported = []
def export(bundle, path):
    exported.append(path)
    time.sleep(0.05)
    path.write_bytes(b"library")
    return path

provider_library.export_provider = export
bundle = Path(sys.argv[1])
with ThreadPoolExecutor(8) as pool:
    (library,) = set(pool.map(sessions._library_of, [bundle] * 8))
assert exported == [library]
if (child := os.fork()) == 0:
    sys.exit(0)
os.waitpid(child, 0)
assert library.is_file()
print(library)
"""


def test_a_bundle_is_exported_once_and_its_library_removed_at_the_end(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text("{}")
    library = Path(run_python(SCRIPT, tmp_path))
    assert not library.parent.exists()
