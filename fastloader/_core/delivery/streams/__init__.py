"""Delivery with torch's streams."""
