"""Describing Parquet files, and making add actions with statistics from them."""
