"""What it costs to load a document with 1,000 operations, against one second, and a cached catalogue against that."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable

import yaml
from documents import many_operations
from sides import alternate, report

from kortix_tui.broker.connectors.model import Catalogue
from kortix_tui.broker.connectors.openapi.mapping import catalogue
from kortix_tui.broker.connectors.openapi.reading import read_document

OPERATIONS = 1000
PACE = 1.0
"""Seconds that are asked for."""


def loaded(data: bytes) -> Catalogue:
    """From bytes to actions."""
    return catalogue(read_document(data), data_hash=hashlib.sha256(data).hexdigest(), base_url=None, source_url=None)


def timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_a_large_document(runs: int, tell: Callable[[str], None]) -> None:
    made = many_operations(OPERATIONS)
    as_json, as_yaml = json.dumps(made).encode(), yaml.safe_dump(made, sort_keys=False).encode()
    whole = loaded(as_json)
    assert len(whole.actions) == OPERATIONS
    assert loaded(as_yaml).actions == whole.actions

    for kind, data in (("JSON", as_json), ("YAML", as_yaml)):
        mine, reference = alternate(runs, lambda data=data: timed(lambda: loaded(data)), lambda: PACE)  # type: ignore[misc]
        tell(
            report(
                f"loading {OPERATIONS} operations from {len(data) >> 10} KiB of {kind} against 1 s, CPU",
                "1",
                mine,
                reference,
            )
        )

    stored = whole.model_dump_json().encode()
    mine, reference = alternate(
        runs, lambda: timed(lambda: Catalogue.model_validate_json(stored)), lambda: timed(lambda: loaded(as_json))
    )
    tell(report("the same catalogue from the store against reading the document, CPU", "1", mine, reference))
