"""TVM's Relax modules with our kernels: whole networks as one library."""

from .library import Network as Network
from .library import load as load
from .network import build as build
from .network import compile_module as compile_module
from .network import export as export
from .replacing import Row as Row
from .rewriting import UseKernels as UseKernels
from .rewriting import report as report
from .rewriting import use_kernels as use_kernels
