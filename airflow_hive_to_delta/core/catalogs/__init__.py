"""AWS Glue, Hive metastores and Unity Catalog: finding tables and partitions, and registering Delta tables."""
