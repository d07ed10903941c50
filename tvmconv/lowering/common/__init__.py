"""What lowering for CPUs and GPUs shares: arguments, steps of epilogues, how a schedule asks for rewrites."""
