"""Random PyTorch programs, by networks and by PyTorch."""
