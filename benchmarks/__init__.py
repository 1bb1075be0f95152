"""Ratios against named rivals, each pair measured side by side in one run."""
