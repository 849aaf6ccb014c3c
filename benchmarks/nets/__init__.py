"""The nets of the built models, in plain torch: each file is one family."""
