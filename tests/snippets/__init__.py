"""Code of the pages, run block by block as a reader would."""
