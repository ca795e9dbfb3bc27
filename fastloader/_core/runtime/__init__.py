"""What one loader has running."""
