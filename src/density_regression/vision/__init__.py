"""Depth of every pixel from one image."""
