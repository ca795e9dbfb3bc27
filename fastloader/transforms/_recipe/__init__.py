"""Recipes, which say what is drawn for a picture, and their random numbers."""
