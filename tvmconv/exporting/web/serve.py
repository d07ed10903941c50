"""Serve this folder at http://localhost:8000, with the headers that make a page cross-origin isolated, for threads."""

from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class IsolatingHandler(SimpleHTTPRequestHandler):
    """Handler that adds the headers of cross-origin isolation."""

    def end_headers(self) -> None:
        """Add the headers, and end a response's."""
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cross-Origin-Embedder-Policy", "require-corp")
        super().end_headers()


if __name__ == "__main__":
    IsolatingHandler.extensions_map |= {".wasm": "application/wasm", ".js": "text/javascript"}
    print("http://localhost:8000")
    here = partial(IsolatingHandler, directory=str(Path(__file__).parent))
    ThreadingHTTPServer(("localhost", 8000), here).serve_forever()
