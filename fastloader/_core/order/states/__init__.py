"""What a loader's state is made of."""
