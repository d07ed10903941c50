"""OpenVINO IR as ONNX models, which the readers of ONNX files then read."""
