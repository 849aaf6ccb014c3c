"""What both IRs and every pass share: nodes, sub-graphs, rewriting, text."""
