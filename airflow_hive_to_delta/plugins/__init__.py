"""The plugin for Airflow: a page that shows the campaigns of migrations, and the API behind it."""
