"""Where the time goes: each kernel next to what the machine could do."""
