"""A differential test of random and of real convolutions that runs for as long as it is told."""
