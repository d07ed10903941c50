"""Read OpenVINO IR."""
