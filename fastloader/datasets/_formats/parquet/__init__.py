"""The Parquet files behind `ParquetImages`."""
