"""What turns other people's models into graphs."""
