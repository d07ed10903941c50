"""All that a program needs which uses a bundle: NumPy and tvm-ffi, no TVM, no compiler."""
