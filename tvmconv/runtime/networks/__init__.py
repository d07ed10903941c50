"""Networks: whole models as one library."""
