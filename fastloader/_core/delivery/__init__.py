"""Delivery, which brings the batches to the loop."""
