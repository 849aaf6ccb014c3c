"""Dot4 and DotPair: small products that hardware has instructions for."""
