"""What a person decides about a change request, as a request to the host."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class DecideChange(BaseModel):
    """Request `change_request.merge`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    change_id: str
    reviewed_head: str
    message: str | None = None
