"""The command line: one file a command. Each parses, calls one function and prints."""
