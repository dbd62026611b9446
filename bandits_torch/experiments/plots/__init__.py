"""Plots of runs and tables. ``bandits_torch.experiments`` exports them."""
