"""Schedulers of Ray Tune, ours among them, on populations that train."""
