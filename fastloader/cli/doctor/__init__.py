"""fastloader doctor."""
