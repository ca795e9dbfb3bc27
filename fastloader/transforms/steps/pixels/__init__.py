"""What changes the values of pixels and leaves the picture's size."""
