"""Lower schedules for CPUs to libraries: rewrites of loops, LLVM, linker."""
