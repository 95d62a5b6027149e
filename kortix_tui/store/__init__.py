"""SQLite state, requests, the audit chain and session records."""
