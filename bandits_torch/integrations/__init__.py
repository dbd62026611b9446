"""Adapters to other tools, each an optional extra."""

RECENT = 50  # trials or rows: of these, failures count as pending, so that a point that fails is not chosen forever
