"""The tensor IR: pure nodes over about 90 primitives, builder, text form, verifier, meaning."""
