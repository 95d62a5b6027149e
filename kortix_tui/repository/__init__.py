"""Git and nothing else: mirror, door service, merge, rescue."""
