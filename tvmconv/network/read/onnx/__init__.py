"""Read ONNX models."""
