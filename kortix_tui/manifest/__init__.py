"""kortix.yaml: its typed model, its faults by line, and its JSON schema."""
