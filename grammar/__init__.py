"""Grammar files (package data)."""
