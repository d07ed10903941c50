"""Networks in PyTorch, written for the benchmark of whole networks, with random weights.

Each file has ``model(width=1.0)``, all of whose channels may be scaled, and ``example(batch=1, size=...)``, an input of the
published size unless told otherwise.
"""
