"""Text from outside that tries to become something else: what agents, repositories and APIs may send."""

from __future__ import annotations

INTRODUCERS = {
    "csi": ("\x1b[", "\x9b"),
    "osc": ("\x1b]", "\x9d"),
    "dcs": ("\x1bP", "\x90"),
    "apc": ("\x1b_", "\x9f"),
    "pm": ("\x1b^", "\x9e"),
    "sos": ("\x1bX", "\x98"),
}
BODIES = {
    "csi": ("2J", "H", "21t", "?1049l", "?1003h", "?2004l", "6n", "c", ">0q", "!p", "1;5r", "8m", "?5h", "5;1H"),
    "osc": (
        "0;owned", "52;c;cm0gLXJm", "8;;https://evil.example", "1337;File=:AAAA", "4;1;rgb:00/00/00", "10;?", "7;file://x",
    ),
    "dcs": ("+q544e", "$q q", "1$r0m", "tmux;\x1b\x1b]52;c;AAAA\x07"),
    "apc": ("Gf=100;AAAA", "x"),
    "pm": ("hidden",),
    "sos": ("hidden",),
}  # fmt: skip
ENDINGS = ("\x07", "\x1b\\", "\x9c", "")
SINGLE = "".join(map(chr, [*range(0x20), 0x7F, *range(0x80, 0xA0)]))
HIDDEN = "\u00ad\u061c\u180e\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufe0f\ufeff\U000e0001\U000e0041\U000e007f\ud800\udc80"  # noqa: E501
MARKUP = (
    "[@click=app.quit]x[/]",
    "[@click=screen.change_merge]merge[/]",
    "[/",
    "\\[/",
    "[b",
    "[[b]]",
    "[type=x, v={'a[0]'}]",
    "[/b]",
    "[link=https://evil.example]x[/link]",
    "[on red]approved[/]",
    "$primary {x} %s {0}",
    "[bold",
    "[]",
    "]",
)
AWKWARD = (
    "日本語のとても長いタイトル" * 20,
    "👨‍👩‍👧‍👦 family ❤️ 🏳️‍🌈",
    "ﷺ" * 40,
    "e\u0301" * 200,
    "Z̸̧̛͔͎a̵l̷g̴o̶" * 10,
    "x" * 9000,
    "\t" * 50,
    "a\r\nb\rc\nd",
    "",
    " ",
    "␛[31m already shown",
    "\x1b[31;1mcoloured\x1b[0m",
    "\x1b[38;2;16;19;26mthe colour of the background\x1b[0m",
)


def corpus() -> list[str]:
    """All of it; more than 200 strings."""
    found = [
        f"a{start}{body}{end}b"
        for family, starts in INTRODUCERS.items()
        for start in starts
        for body in BODIES[family]
        for end in (ENDINGS if family != "csi" else ("",))
    ]
    found += [f"one {character} two" for character in SINGLE + HIDDEN]
    return [*found, *MARKUP, *AWKWARD]
