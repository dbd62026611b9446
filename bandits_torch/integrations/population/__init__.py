"""Schedules of hyperparameters for a population that trains, whatever tool runs it."""
