"""Serve a network: POST its first input as numpy.save writes it; the response is the first output in the same format.

python serve.py model.so 8000
"""

import io
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zipfile import BadZipFile

import numpy as np

import tvmconv


def handler(network):
    """Return a request handler that calls a network."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = io.BytesIO(self.rfile.read(int(self.headers["Content-Length"])))
            answer = io.BytesIO()
            try:
                outputs = network(**{network.inputs[0].name: np.load(body, allow_pickle=False)})
            except (EOFError, ValueError, BadZipFile) as error:  # nothing, no array, or not one that the network takes
                self.send_error(400, str(error))
                return
            np.save(answer, outputs[network.outputs[0].name])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer.getvalue())

    return Handler


if __name__ == "__main__":
    path, port = sys.argv[1:]
    ThreadingHTTPServer(("", int(port)), handler(tvmconv.load_network(path))).serve_forever()
