"""One HTML page about a bundle on this machine: what its kernels are, how fast, and what limits them."""
