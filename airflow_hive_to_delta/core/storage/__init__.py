"""Locations of files, and reading, listing and conditional writing on every kind of storage."""
