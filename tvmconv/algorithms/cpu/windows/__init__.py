"""Windows: what direct algorithms compute, how they read and cut it."""
