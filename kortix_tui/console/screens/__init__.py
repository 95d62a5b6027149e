"""Screens: arrange widgets, turn keys into commands."""
