"""BKB's posterior over many arms, from a small dictionary of arms that is resampled by ridge leverage scores."""
