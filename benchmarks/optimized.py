"""What `tvmconv.torch.optimize` adds to the memory of a process that has called a model, its networks in a folder.

Printed are MiB: the model's weights, what the process has before, and what `optimize` and two calls of its copy add, also as times the
weights. `exported` is the same of a process that has loaded the modules of torch.export before.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence

from tvmconv.cli.output import print_table
from tvmconv.runtime.processors import kernel_threads
from tvmconv.support.workers import Worker

from .optimized_child import Task, added

NETWORKS = ("resnet18", "resnet50", "vgg16")
HEADER = ("network", "process", "weights", "before", "added", "times the weights")


def main(argv: Sequence[str] | None = None) -> int:
    """Measure networks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.optimized", description=__doc__)
    parser.add_argument("networks", nargs="*", help=f"of the zoo; default: {', '.join(NETWORKS)}")
    parser.add_argument("--memory", choices=("default", "small"), help="default: optimize's")
    parser.add_argument("--let-go", action="store_true", help="of the weights, and of the model")
    parser.add_argument("--folder", help="keeps what was built for another run")
    arguments = parser.parse_args(argv)
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for network in arguments.networks or NETWORKS:
            folder = f"{arguments.folder or temporary}/{network}-{arguments.memory}"
            task = Task(network, folder, arguments.memory, not arguments.let_go)
            _in_a_process(task)  # what is not there is built
            for exported in (False, True):
                weights, before, more = _in_a_process(
                    Task(network, folder, arguments.memory, not arguments.let_go, exported)
                )
                cells = (f"{weights:.0f}", f"{before:.0f}", f"{more:.0f}", f"{more / weights:.2f}")
                rows.append((network, "exported" if exported else "new", *cells))
    print_table(HEADER, rows)
    return 0


def _in_a_process(task: Task) -> tuple[float, float, float]:
    worker = Worker(added, kernel_threads(), torch=True)
    try:
        found: tuple[float, float, float] = worker.call(task)
        return found
    finally:
        worker.close()


if __name__ == "__main__":
    sys.exit(main())
