"""Try random ONNX graphs for as long as told; exit with 1 if one was wrong or failed."""

from __future__ import annotations

import sys

from tests.many import try_many

from .check import check_seed

if __name__ == "__main__":
    sys.exit(try_many(check_seed, "graphs", __doc__))
