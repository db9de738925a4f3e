"""Measurements, papers and examples: README.md says which command answers which question."""
