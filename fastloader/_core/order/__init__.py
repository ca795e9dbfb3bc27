"""Which samples come next, and where the loop stands."""
