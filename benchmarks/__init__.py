"""Benchmarks of conversions, syncs and checks against other tools: ``python -m benchmarks --help``."""
