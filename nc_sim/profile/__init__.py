"""Profiles in the published form: tables, summary metrics, and what is written from them."""

FORMATS = ("text", "parquet", "json", "summary-json", "summary-text", "perfetto")
