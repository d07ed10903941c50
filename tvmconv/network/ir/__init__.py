"""The graph representation shared by all passes."""
