"""The parts of a loader's state."""
