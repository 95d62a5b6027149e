"""Dialogs that ask for something and have the runtime do one act with it."""
