"""``python -m benchmarks.gpu``."""

import importlib.util
import sys

NEEDED = ("torch", "gpytorch", "botorch", "numpy", "pandas")

if __name__ == "__main__":
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}; nothing can be measured without")
    from benchmarks.gpu.command import main

    sys.exit(main())
