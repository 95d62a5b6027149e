"""One way out for everything that the host sends."""
