"""Who makes the batches."""
