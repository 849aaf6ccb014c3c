"""The only place that knows every layer: compile, run, check, explain."""
