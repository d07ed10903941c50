"""Load and call bundles, with NumPy and tvm-ffi: no TVM, no compiler."""
