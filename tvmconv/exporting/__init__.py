"""A bundle as a library for C: header, archive, no Python, no run-time dependency (docs/c.md)."""

from pathlib import Path

# Folder in which CMake finds the package tvmconv, with its function tvmconv_add_library: cmake -Dtvmconv_DIR=...
CMAKE = Path(__file__).parent / "cmake"
# The library's own threads (`tvmconv.exporting.exporter.export_c`).
THREADS = ("none", "pthreads", "openmp")
