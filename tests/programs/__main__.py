"""Try random PyTorch programs for as long as told; exit with 1 if one was wrong or failed."""

from __future__ import annotations

import sys

import torch

from tests.many import try_many

from .check import check_seed

if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(try_many(check_seed, "programs", __doc__))
