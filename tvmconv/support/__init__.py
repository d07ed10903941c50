"""Files written whole, and processes: what every other room may use."""
