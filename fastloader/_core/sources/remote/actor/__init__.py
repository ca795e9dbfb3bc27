"""What runs in the actors, and how its batches travel."""
