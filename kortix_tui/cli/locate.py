"""`kortix locate`: where things are."""

from __future__ import annotations

import argparse
import json

from kortix_tui.base.paths import Home, cache_folder, config_folder
from kortix_tui.base.text import visible_line
from kortix_tui.cli.output import say, say_fields
from kortix_tui.cli.parsing import Parser, add_json, show_examples


def add_locate(parser: Parser) -> None:
    """Add the options."""
    parser.set_defaults(run=_locate)
    parser.epilog = show_examples(("locate", "locate --json"))
    add_json(parser)


def _locate(arguments: argparse.Namespace) -> None:
    home = Home.locate()
    places = {
        "home": home.path,
        "settings": config_folder() / "config.yaml",
        "cache": cache_folder(),
        "state": home.database,
        "host_log": home.path / "host.log",
    }
    if arguments.json:
        say(json.dumps({name: visible_line(str(path)) for name, path in places.items()}, indent=2))
    else:
        say_fields([(name.replace("_", " "), str(path)) for name, path in places.items()])
