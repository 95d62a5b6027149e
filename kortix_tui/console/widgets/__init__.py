"""Line-API widgets that draw large data."""
