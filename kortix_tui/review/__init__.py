"""Change requests: open, diff, preview, merge."""
