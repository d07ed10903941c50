"""Lower schedules for CPUs to libraries: rewrites of loops, LLVM, the linker."""
