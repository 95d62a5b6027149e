"""The kortix command; one module per noun."""
