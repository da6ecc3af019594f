"""Deleting files that no version of a table needs any more."""
