"""OpenVINO IR as ONNX models, which the reader of ONNX files then reads."""
