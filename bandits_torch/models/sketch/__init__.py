"""BKB's posterior over many arms: through a small dictionary of them, drawn anew by ridge leverage scores."""
