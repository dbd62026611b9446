"""Models over a finite set of arms: inputs are indices, and all arms are scored from cached marginals."""
