"""What is drawn for a picture: recipes and their random numbers."""
