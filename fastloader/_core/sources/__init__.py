"""Sources, which make the batches."""
