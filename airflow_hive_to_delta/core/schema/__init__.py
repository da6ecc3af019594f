"""Types, schemas and partition values: from what catalogs and files say to what Delta stores."""
