"""What models of every kind compute with: factors that are safe, changed by one row, and posteriors from counts."""
