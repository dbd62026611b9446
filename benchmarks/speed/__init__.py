"""How fast a step is, and how much memory it takes, against plain BoTorch and against the machine itself.

From a checkout: ``python -m benchmarks.speed [NAME ...] [--fast] [--device cpu|cuda] [--out DIR]``.
"""
