"""Call the kernels that were compiled into a folder, once each, for compute-sanitizer: only the driver and NumPy.

Run as ``python sanitized.py FOLDER``; prints a line for each kernel whose answer is wrong, and one at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tvmconv.accuracy import difference
from tvmconv.fills import exact_case
from tvmconv.measuring.cuda_timing import launches
from tvmconv.runtime.cuda.memory import DeviceArray
from tvmconv.signature import parse_signature

folder = Path(sys.argv[1])
for made in json.loads((folder / "kernels.json").read_text()):
    problem = parse_signature(made["signature"])
    arrays, expected = exact_case(problem)
    given = [DeviceArray.of(array) for array in arrays.given().values()]
    output = DeviceArray(expected.shape, expected.dtype)
    output.fill(0xFF)
    launches(folder / made["file"], [[*given, output]], 0)[0]()
    wrong = difference(output.numpy(), expected, made["numerical_class"], problem)
    if wrong:
        print(f"{made['algorithm']} of {made['signature']}: {wrong}")
print("every kernel was called")
