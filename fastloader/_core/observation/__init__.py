"""What is counted, and what follows from the counts."""
