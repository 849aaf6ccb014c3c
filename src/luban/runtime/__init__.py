"""Running compiled code. Knows addresses and buffers, no IR and no compiler."""
