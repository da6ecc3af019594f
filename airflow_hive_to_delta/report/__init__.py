"""The migration report: the outcomes of tables, the HTML page, and the redaction of credentials."""
