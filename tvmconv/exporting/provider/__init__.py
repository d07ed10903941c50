"""The C sources of an execution provider for onnxruntime, which go into a library with kernels (docs/onnxruntime.md)."""
