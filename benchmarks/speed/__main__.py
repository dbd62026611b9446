"""``python -m benchmarks.speed``."""

from benchmarks.speed.cli import app

if __name__ == "__main__":
    app()
