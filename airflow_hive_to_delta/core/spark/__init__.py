"""Sessions of Spark, SQL that is quoted, and what Spark's errors mean."""
