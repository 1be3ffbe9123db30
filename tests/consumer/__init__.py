"""Somebody else's project that uses a method by its component.yaml alone."""
