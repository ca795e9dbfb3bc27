"""What is counted, and what follows from it."""
