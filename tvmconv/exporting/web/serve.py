"""Serve this folder at http://localhost:8000, with the headers that make a page isolated."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class IsolatingHandler(SimpleHTTPRequestHandler):
    """Handler that adds the headers of isolation."""

    def end_headers(self) -> None:
        """End the headers of an answer."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


if __name__ == "__main__":
    IsolatingHandler.extensions_map |= {".wasm": "application/wasm", ".js": "text/javascript"}
    print("http://localhost:8000")
    here = partial(IsolatingHandler, directory=str(Path(__file__).parent))
    ThreadingHTTPServer(("localhost", 8000), here).serve_forever()
