"""Contexts over arms: against a dense process made anew at every step, and against linear policies of ``coba``."""
