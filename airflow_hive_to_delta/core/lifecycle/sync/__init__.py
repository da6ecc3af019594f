"""Bringing what Hive jobs have written since the conversion into the Delta table."""
