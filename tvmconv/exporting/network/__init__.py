"""The C files of networks in libraries without tvm-ffi."""
