"""A headless Chromium that visits a page of a folder, isolated, and hands back what the page sends."""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tvmconv.errors import SourceError

# Debian's, and the name that others give it.
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
# As root, Chromium's own sandbox does not start; pages here are ours.
_FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage")


class _Handler(SimpleHTTPRequestHandler):
    """Handler of a folder's files and of one message."""

    extensions_map = SimpleHTTPRequestHandler.extensions_map | {".wasm": "application/wasm", ".mjs": "text/javascript"}

    def __init__(self, *arguments: Any, messages: queue.Queue[Any], **options: Any) -> None:
        self._messages = messages
        super().__init__(*arguments, **options)

    def end_headers(self) -> None:
        """End the headers of an answer, with those that let a page have threads."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()

    def do_POST(self) -> None:
        """Take what the page sends."""
        self._messages.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *arguments: Any) -> None:
        """Keep quiet."""


@contextmanager
def _serving(folder: Path) -> Iterator[tuple[str, queue.Queue[Any]]]:
    messages: queue.Queue[Any] = queue.Queue()
    server = ThreadingHTTPServer(("localhost", 0), partial(_Handler, directory=str(folder), messages=messages))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}", messages
    finally:
        server.shutdown()
        server.server_close()


def _thread_times(browser: int) -> dict[str, float]:
    """Return the seconds that the threads of a browser's pages have computed."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
    times = {}
    for process in parents:
        ancestor = process
        while ancestor in parents and ancestor != browser:
            ancestor = parents[ancestor]
        with suppress(OSError):
            if ancestor == browser and b"--type=renderer" in Path(f"/proc/{process}/cmdline").read_bytes():
                for file in Path(f"/proc/{process}/task").glob("*/schedstat"):
                    times[file.parent.name] = int(file.read_text().split()[0]) / 1e9
    return times


def visit(folder: Path, page: str, limit: float = 120.0) -> Any:
    """Open a page and return what it sends.

    Parameters
    ----------
    folder
        Its files.
    page
        Path of the page in the folder, with what follows it in an address. Its script ends with
        ``fetch("/", { method: "POST", body: JSON.stringify(answer) })``; an answer with ``mark`` is none: after two such, the
        last one gets ``cpu``, the seconds that the busiest thread of a page computed between them.
    limit
        Seconds until it must have answered.

    Raises
    ------
    SourceError
        If there is no Chromium, or the page sends nothing within `limit` seconds.
    """
    if CHROMIUM is None:
        raise SourceError("there is no Chromium: install your system's package chromium")
    with _serving(folder) as (address, messages), tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", f"{address}/{page}"]
        browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            marks = []
            while "mark" in (answer := messages.get(timeout=limit)):
                marks.append(_thread_times(browser.pid))
            if len(marks) == 2:
                answer["cpu"] = max(seconds - marks[0].get(thread, 0.0) for thread, seconds in marks[1].items())
            return answer
        except queue.Empty:
            raise SourceError(f"{page} sent nothing in {limit:.0f} s") from None
        finally:
            browser.terminate()
            browser.wait()
