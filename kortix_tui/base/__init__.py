"""Words, ids, clock, errors, paths, settings and safe text: what every layer shares."""
