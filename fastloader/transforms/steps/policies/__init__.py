"""Policies: many operations of random strength."""
