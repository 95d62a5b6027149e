"""Sandboxes on the operator's own Docker engine."""
