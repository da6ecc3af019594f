"""Making a Delta table the Hive table that it was."""
