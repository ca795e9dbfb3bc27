"""Batches that Ray actors make, on any machine of a cluster."""
