"""One module per paper: its figures and claims, run from a checkout with ``python -m benchmarks.papers.<name>``."""
