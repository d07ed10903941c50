"""tvmconv: an ahead-of-time compiler for convolutions."""

__version__ = "0.1.0"
