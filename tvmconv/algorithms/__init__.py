"""The ways to compute a Problem: what each covers, what it costs, its tensor expressions."""
