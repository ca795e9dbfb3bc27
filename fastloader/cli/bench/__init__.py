"""What ``fastloader bench`` runs. Nothing here is imported with fastloader."""
