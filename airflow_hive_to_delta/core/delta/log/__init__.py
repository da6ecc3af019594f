"""The Delta log of a table: its files, its entries, and how they are written and read."""
