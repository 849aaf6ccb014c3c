"""Real and built models, and what measures Luban on them against other runtimes."""
