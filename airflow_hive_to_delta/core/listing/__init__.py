"""Which files a table has."""
