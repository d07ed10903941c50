"""Random ONNX graphs: drawn node by node, computed by onnxruntime, and compiled to a network."""
