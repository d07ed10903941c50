"""What a kernel is compiled for."""
