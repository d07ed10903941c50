"""What a program that uses a bundle needs: NumPy and tvm-ffi, no TVM, no compiler."""
