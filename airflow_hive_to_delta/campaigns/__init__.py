"""Campaigns: the migration of thousands of tables in waves, with their state in plain documents on a storage.

This package knows neither Airflow nor Spark. The Delta logs are the truth; the documents remember what was tried.
"""
