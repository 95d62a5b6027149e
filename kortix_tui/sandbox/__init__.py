"""The provider protocol, images, and the supervisor's channel."""
