"""One HTML page about a bundle on this machine: its kernels, their speed, and its limits."""
