"""Types, schemas and partition values: their translation from catalogs and files to Delta."""
