"""The tensor IR: pure nodes over about 90 primitives, its builder, text form, verifier and meaning."""
