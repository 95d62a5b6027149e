"""Connectors: declared ways to reach outside systems, whose credentials stay on the host."""
