"""The order: which samples come next, and where the loop stands."""
