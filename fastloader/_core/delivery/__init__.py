"""Who brings the batches to the loop."""
