"""Windows, the units of direct algorithms: their reads of data and filter, tiles and plans."""
