"""Call the kernels that were compiled into a folder, once each, for compute-sanitizer: only the driver and NumPy.

Run as ``python sanitized.py FOLDER``; prints a line for each kernel whose answer is wrong, and one at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tvmconv.cuda_memory import DeviceArray
from tvmconv.cuda_timing import launches
from tvmconv.fills import exact_case
from tvmconv.measure import difference
from tvmconv.signature import parse_signature

folder = Path(sys.argv[1])
for file, signature, numerical_class in json.loads((folder / "kernels.json").read_text()):
    problem = parse_signature(signature)
    arrays, expected = exact_case(problem)
    given = [DeviceArray.of(array) for array in arrays if array is not None]
    output = DeviceArray(expected.shape, expected.dtype)
    output.fill(0xFF)
    launches(folder / file, [[*given, output]], 0)[0]()
    wrong = difference(output.numpy(), expected, numerical_class, problem.dtype)
    if wrong:
        print(f"{file} {signature}: {wrong}")
print("every kernel was called")
