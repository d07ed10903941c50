"""Guards of models: facts that a trace read, checked in each call."""
