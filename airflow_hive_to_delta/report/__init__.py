"""The migration report: outcomes, and the HTML page."""
