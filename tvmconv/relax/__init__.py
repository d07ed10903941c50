"""TVM's Relax modules with our kernels: whole networks as one library."""

from ..network.kernels.replace import Row as Row
from ..network.passes import UseKernels as UseKernels
from ..network.passes import report as report
from ..network.passes import use_kernels as use_kernels
