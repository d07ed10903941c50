"""Lowering for both CPUs and GPUs: arguments, steps of epilogues, and rewrites that schedules annotate loops with."""
