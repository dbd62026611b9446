"""Safe policies where the constraint drifts: how often limits are broken, and what keeping them costs."""
