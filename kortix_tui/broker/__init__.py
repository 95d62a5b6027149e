"""What the host serves behind a session's door."""
