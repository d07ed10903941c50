"""Guards of models: facts that a trace read, compared in each call."""
