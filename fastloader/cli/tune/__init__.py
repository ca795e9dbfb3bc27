"""``fastloader tune``."""
