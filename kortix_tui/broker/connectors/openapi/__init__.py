"""OpenAPI documents become catalogues of actions."""
