"""Driving an agent program."""
