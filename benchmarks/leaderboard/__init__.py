"""Every recipe on every environment, with settings fixed once: ``python -m benchmarks.leaderboard``."""
