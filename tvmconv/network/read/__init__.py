"""Readers: models of other tools as Relax modules."""
