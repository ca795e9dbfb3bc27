"""``fastloader check``."""
