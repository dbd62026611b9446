"""Papers, figure by figure: ``python -m benchmarks.papers <paper> ...`` from a checkout."""
