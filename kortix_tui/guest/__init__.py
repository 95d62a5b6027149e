"""The files that go into a sandbox. Standard library only; imports nothing of the rest."""
