"""Kortix TUI: a console and a runtime for AI coding agents on real repositories."""

__version__ = "0.1.0"
