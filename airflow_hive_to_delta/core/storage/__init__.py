"""Where logs and data files lie: URIs, clients, and put-if-absent, read and list on every kind of storage."""
