"""Listing the files of a table."""
