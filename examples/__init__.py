"""Runnable examples; `python -m examples.<name>` from the top of a checkout."""
