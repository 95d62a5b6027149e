"""What our image layer runs while it is built; standard library only, it is copied into the image."""
