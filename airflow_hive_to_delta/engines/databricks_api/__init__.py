"""The REST API of Databricks: files in a workspace or a volume, and what errors mean."""
