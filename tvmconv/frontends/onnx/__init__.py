"""Read the convolutions of ONNX models."""
