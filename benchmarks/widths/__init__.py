"""Widths with a theorem, and recipes with a regret bound for an unknown length-scale or drift: what they cost."""
