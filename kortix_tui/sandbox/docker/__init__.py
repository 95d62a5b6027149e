"""The Docker provider: finding the engine, hardened containers, image builds."""
