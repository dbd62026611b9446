"""Everything that needs a GPU, in one command of under nine minutes: ``python -m benchmarks.gpu --out DIR``.

A run cut short leaves what it had. ``--rehearse`` runs every line of it in small, on a CPU if need be.
"""

import importlib.util
import sys

NEEDED = ("torch", "gpytorch", "botorch", "numpy", "pandas")

if __name__ == "__main__":
    missing = [name for name in NEEDED if not importlib.util.find_spec(name)]
    if missing:
        sys.exit(f"not installed: {', '.join(missing)}; nothing can be measured without")
    from benchmarks.gpu.command import main

    sys.exit(main())
