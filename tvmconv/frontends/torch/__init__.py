"""Read the convolutions of exported PyTorch programs."""
