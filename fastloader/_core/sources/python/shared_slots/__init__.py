"""Slots of shared memory that worker processes collate batches into."""
