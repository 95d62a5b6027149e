"""What can go wrong with images and sandboxes while the engine itself answers."""

from __future__ import annotations

from kortix_tui.base.errors import KortixError, NotFound, Refused


class ImageMissing(NotFound):
    """The image is not on the engine; building the template again makes it."""

    code = "image_missing"


class ImageRefused(Refused):
    """The image cannot carry a sandbox; the message names the image and what it lacks."""

    code = "image_refused"


class BuildFailed(KortixError):
    """A step of an image build failed; the message ends with the newest lines of its output."""

    code = "build_failed"


class SandboxFailed(KortixError):
    """The engine answered, but could not make or end the container."""

    code = "sandbox_failed"
