"""Secrets at rest: one file, opened by key slots, in which every byte is authenticated.

Nothing is imported here, so that naming one module of the vault does not load the cipher or the keyring.
"""
