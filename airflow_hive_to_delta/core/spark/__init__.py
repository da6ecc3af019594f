"""Sessions of Spark, quoting for Spark SQL, and the translation of Spark's errors."""
