"""Eight questions open at once against one at a time: regret, duplicates, and what asking costs."""
