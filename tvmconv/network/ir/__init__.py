"""The graph that all passes share."""
