"""What Parquet files say of themselves, as add actions with statistics."""
