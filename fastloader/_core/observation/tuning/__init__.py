"""``num_workers="auto"``, ``depth="auto"``."""
