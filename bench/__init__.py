"""Benchmarks of torchctl, and the peers it is measured beside. `python -m bench` runs them."""
