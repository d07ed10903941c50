"""Files written whole, and processes: what every other package may use."""
