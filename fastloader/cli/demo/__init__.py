"""fastloader demo."""
