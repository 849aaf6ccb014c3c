"""Graph to graph: named passes that keep the meaning and report what they did."""
