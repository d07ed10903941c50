"""From a schedule for a CPU to a library: rewrites of its loops, LLVM, the linker."""
