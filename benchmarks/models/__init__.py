"""Networks in PyTorch, written for the benchmark of whole networks, with random weights.

Each file has ``model(width=1.0)``, all of whose channels may be scaled, and ``example(batch=1, size=...)``, an input of the
published size unless told otherwise.
"""

NETWORKS = (
    "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "inception_v3", "csp_darknet", "convnext_tiny",
    "unet", "unet3d", "hifigan",
)  # fmt: skip
