"""Time exported kernels from C beside the same kernels in Python, in turns, one thread, filters prepacked.

``python -m benchmarks.c_library SIGNATURE ...`` prints for each the least time of a call from C, from Python, and their ratio; and what
a call costs beside a kernel: the least time of a convolution of one number.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from tvmconv import build, fills, load
from tvmconv.exporting.exporter import export_c
from tvmconv.runtime.kernel import Kernel
from tvmconv.signature import parse_signature

ONE_NUMBER = "conv1d-n1-i1x1-o1x1-k1-s1-d1-p0_0-g1-NXC-XIO-f32"
ROUNDS = 5
SECONDS = 0.2
PROGRAM = """\
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "timed.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int count, char **arguments) {
  const timed_kernel *kernel = count == 2 ? timed_find(arguments[1]) : NULL;
  const void *inputs[8];
  void *made[9];
  if (kernel == NULL) return 1;
  for (int i = 0; i <= kernel->inputs; ++i) {
    size_t bytes = (kernel->arrays[i].bytes + 127) / 64 * 64;
    if (posix_memalign(&made[i], 64, bytes) != 0) return 2;
    memset(made[i], 0, bytes);
    if (i < kernel->inputs) inputs[i] = made[i];
  }
  void *packed;
  if (posix_memalign(&packed, 64, kernel->packed_bytes() + 64) != 0 || kernel->pack(inputs[1], packed) != 0) return 3;
  inputs[1] = packed;
  timed_call call = {NULL, NULL, 1, malloc(kernel->packed_workspace_bytes(1) + 1), kernel->packed_workspace_bytes(1)};
  double least = 1e9, begin = now();
  while (now() - begin < SECONDS) {
    double start = now();
    for (int i = 0; i < CALLS; ++i)
      if (kernel->run_packed(&call, inputs, made[kernel->inputs]) != 0) return 4;
    double taken = (now() - start) / CALLS;
    if (taken < least) least = taken;
  }
  printf("%.9f\\n", least);
  return 0;
}
"""


def _compiled(folder: Path, calls: int) -> Path:
    (folder / "timed.c").write_text(PROGRAM)
    program = folder / f"timed{calls}"
    flags = (f"-DCALLS={calls}", f"-DSECONDS={SECONDS}", f"-I{folder / 'timed'}")
    subprocess.run(["cc", "-O2", *flags, "timed.c", "timed/libtimed.a", "-o", program], cwd=folder, check=True)
    return program


def main() -> None:
    """Time the kernels and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("signatures", nargs="+", metavar="SIGNATURE")
    signatures = parser.parse_args().signatures
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bundle = build(
            [parse_signature(each) for each in (*signatures, ONE_NUMBER)], folder / "timed.bundle", verify=False
        )
        export_c(bundle, folder / "timed")
        programs = {calls: _compiled(folder, calls) for calls in (1, 1000)}
        registry = load(bundle, threads=1)
        for signature in signatures:
            kernel = registry[signature]
            assert isinstance(kernel, Kernel)
            given = fills.random_fill(kernel.problem).given()
            arrays: dict[str, Any] = {name: np.zeros_like(each) for name, each in given.items()}
            arrays["filter"] = kernel.pack(arrays["filter"])
            output = kernel(**arrays)
            c_times, python_times = [], []
            for _ in range(ROUNDS):
                c_times.append(float(subprocess.run([programs[1], signature], capture_output=True, check=True).stdout))
                end = time.perf_counter() + SECONDS
                while time.perf_counter() < end:
                    start = time.perf_counter()
                    kernel(**arrays, out=output)
                    python_times.append(time.perf_counter() - start)
            ours, python = min(c_times), min(python_times)
            print(f"{signature}: C {1e6 * ours:.1f} us, Python {1e6 * python:.1f} us, {ours / python:.3f}")
        done = subprocess.run([programs[1000], ONE_NUMBER], capture_output=True, check=True)
        print(f"a call of one number: {1e9 * float(done.stdout):.0f} ns")


if __name__ == "__main__":
    main()
