"""Requests to object stores."""
