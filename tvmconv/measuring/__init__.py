"""How long a kernel takes, and how fast a machine is."""
