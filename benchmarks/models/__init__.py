"""Networks in PyTorch, written for the benchmark of whole networks, with random weights."""
