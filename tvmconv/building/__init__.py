"""Problems to bundles."""
