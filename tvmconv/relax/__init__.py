"""TVM's Relax modules with our kernels: whole networks as one library."""

from ..network.kernels.replace import Row as Row
from ..network.lower import build as build
from ..network.lower import compile_module as compile_module
from ..network.lower import export as export
from ..network.passes import UseKernels as UseKernels
from ..network.passes import report as report
from ..network.passes import use_kernels as use_kernels
from ..network.virtual_machine import Network as Network
from ..network.virtual_machine import load as load
