"""The Runtime facade and the reconciler behind it."""
