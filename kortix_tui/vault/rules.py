"""What a secret may be called, where its value may go, and which values cannot be kept safe.

Messages here never quote a value.
"""

from __future__ import annotations

import math
import re
from itertools import pairwise
from typing import Final

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.faults import choose
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Exposure
from kortix_tui.vault.records import MAX_VALUE_BYTES
from kortix_tui.vault.secret import Secret

PROVIDER_KEYS: Final = frozenset(
    {
        "AI_GATEWAY_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AZURE_OPENAI_API_KEY", "CEREBRAS_API_KEY",
        "CLAUDE_CODE_OAUTH_TOKEN", "COHERE_API_KEY", "DASHSCOPE_API_KEY", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY",
        "GEMINI_API_KEY", "GOOGLE_GENERATIVE_AI_API_KEY", "GROQ_API_KEY", "MINIMAX_API_KEY", "MISTRAL_API_KEY",
        "MOONSHOT_API_KEY", "OPENAI_API_KEY", "OPENROUTER_API_KEY", "PERPLEXITY_API_KEY", "TOGETHER_API_KEY",
        "XAI_API_KEY", "ZAI_API_KEY", "ZHIPUAI_API_KEY",
    }
)  # fmt: skip
"""Names under which agents look for a model provider's key. Unless a person says otherwise, the value goes to the model
gateway only."""

ALIASES: Final = {
    "env": Exposure.ENVIRONMENT,
    "runtime": Exposure.ENVIRONMENT,
    "egress": Exposure.EGRESS,
    "broker": Exposure.CONNECTOR,
    "denied": Exposure.NONE,
}
"""Kortix's own words for exposures, and short ones."""

MIN_ENVIRONMENT_BYTES: Final = 8
_MIN_BITS: Final = 32.0
"""About what a search through an oracle takes four thousand million tries for."""

_IDENTIFIER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")
_NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}\Z")
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")

_LOADS: Final = "it changes which programs or libraries are loaded"
_FINDS: Final = "it changes where programs look for their files"
_ROUTES: Final = "it changes where network traffic goes, which the runtime decides"
_TRUSTS: Final = "it changes which servers are trusted"
_REFUSED_BEGINNINGS: Final = {
    "LD_": _LOADS,
    "DYLD_": _LOADS,
    "PYTHON": _LOADS,
    "BASH_FUNC_": _LOADS,
    "GIT_": "it changes what git does",
    "XDG_": _FINDS,
}
_REFUSED: Final = {
    **dict.fromkeys(
        (
            "BASHOPTS", "BASH_ENV", "BROWSER", "CLASSPATH", "EDITOR", "ENV", "GCONV_PATH", "GLIBC_TUNABLES", "GOFLAGS",
            "IFS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "LESSCLOSE", "LESSOPEN", "LOCPATH", "MAKEFLAGS", "MANPAGER",
            "NODE_OPTIONS", "NODE_PATH", "PAGER", "PATH", "PERL5DB", "PERL5LIB", "PERL5OPT", "PERLLIB",
            "PROMPT_COMMAND", "PS4", "RUBYLIB", "RUBYOPT", "RUSTC_WRAPPER", "SHELL", "SHELLOPTS", "SSH_ASKPASS",
            "SUDO_ASKPASS", "VISUAL", "_JAVA_OPTIONS",
        ),
        _LOADS,
    ),
    **dict.fromkeys(("CDPATH", "HOME", "LOGNAME", "OLDPWD", "PWD", "TERMINFO", "TMPDIR", "USER"), _FINDS),
    **dict.fromkeys(("HOSTALIASES", "RES_OPTIONS", "SSH_AUTH_SOCK"), _ROUTES),
    **dict.fromkeys(
        (
            "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "NODE_TLS_REJECT_UNAUTHORIZED", "REQUESTS_CA_BUNDLE",
            "SSL_CERT_DIR", "SSL_CERT_FILE",
        ),
        _TRUSTS,
    ),
}  # fmt: skip
_COMMON: Final = re.compile(
    "admin|administrator|api|changeit|change|default|demo|development|disabled|enabled|example|foobar|here|hunter2|key|"
    "letmein|localhost|me|password|placeholder|postgres|production|qwerty(?:uiop)?|replace|root|sample|secret|staging|"
    "testing|test|token|undefined|user|value|welcome|your",
    re.IGNORECASE,
)
"""What anybody would try first: it adds nothing to a value."""


def check_identifier(text: str) -> str:
    """The name by which rules know a secret, such as `stripe-live`.

    Raises:
        InvalidInput: It does not have the shape.
    """
    if not _IDENTIFIER.match(text):
        raise InvalidInput(
            f"`{_shown(text)}` is not a secret's identifier.",
            hint="Use letters, digits, `_`, `.` and `-`, at most 128, beginning with a letter or digit.",
        )
    return text


def check_name(text: str) -> str:
    """The environment variable that carries the value, such as `STRIPE_KEY`.

    Raises:
        InvalidInput: It does not have the shape, or would change more than a program's own setting.
    """
    if not _NAME.match(text):
        upper = re.sub(r"[^A-Z0-9_]", "_", text.upper())
        guess = f" Did you mean `{upper}`?" if _NAME.match(upper) else ""
        raise InvalidInput(
            f"`{_shown(text)}` is not the name of an environment variable.",
            hint=f"Use A-Z, 0-9 and `_`, at most 64, not beginning with a digit.{guess}",
        )
    if text.startswith("KORTIX_"):
        raise InvalidInput(f"`{text}` is reserved.", hint="Names that begin with KORTIX_ are set by the runtime.")
    reason = _REFUSED.get(text) or next(
        (why for beginning, why in _REFUSED_BEGINNINGS.items() if text.startswith(beginning)),
        _ROUTES if text.endswith("_PROXY") else None,
    )
    if reason:
        raise InvalidInput(f"A secret cannot be called `{text}`: {reason}.", hint="Choose another name.")
    return text


def check_host(text: str) -> str:
    """A host that an egress-enforced value may be sent to: exact, in lower case, without scheme, port or wildcard.

    Raises:
        InvalidInput: It is not one.
    """
    host = text.lower().removesuffix(".")
    labels = host.split(".")
    # A last label of digits would be an address, for which no certificate speaks.
    if len(host) > 253 or len(labels) < 2 or labels[-1].isdigit() or not all(_LABEL.match(one) for one in labels):
        raise InvalidInput(
            f"`{_shown(text)}` is not a host name.",
            hint="Write it exactly, such as `api.example.com`: no scheme, port, path, address or wildcard.",
        )
    return host


def read_exposure(text: str) -> Exposure:
    """An exposure as a person writes it, aliases included.

    Raises:
        InvalidInput: It is none.
    """
    word = text.strip().lower()
    if word in ALIASES:
        return ALIASES[word]
    try:
        return Exposure(word)
    except ValueError:
        words = [exposure.value for exposure in Exposure]
        # A near alias is answered with the alias, which is accepted too.
        hint = choose(word, [*words, *ALIASES]) if word else choose(word, words)
        raise InvalidInput(f"`{_shown(text)}` is not an exposure.", hint=hint) from None


def exposure_of_new(name: str, asked: Exposure | None, default: Exposure) -> tuple[Exposure, bool]:
    """Where a new secret's value may go.

    Args:
        name: Its environment variable.
        asked: What the person said, if anything.
        default: What the operator's settings say.

    Returns:
        The exposure, and whether the model gateway may use the value.
    """
    if asked is not None:
        return asked, name in PROVIDER_KEYS and asked is Exposure.NONE
    return (Exposure.NONE, True) if name in PROVIDER_KEYS else (default, False)


def check_value(value: Secret | bytes, exposure: Exposure) -> tuple[str, ...]:
    """Whether a value can be kept.

    Args:
        value: As it will be used.
        exposure: Where it may go. In the environment of a sandbox a value must not be guessable: whoever prints guesses
            sees which of them is blacked out, and short values cannot be blacked out at all.

    Returns:
        Warnings: sentences for the person.

    Raises:
        InvalidInput: It cannot be a value, or not one with this exposure.
    """
    data = value.use("check the value") if isinstance(value, Secret) else value
    if not data:
        raise InvalidInput("The value is empty.", hint="Give a value, or leave the secret out.")
    if len(data) > MAX_VALUE_BYTES:
        raise InvalidInput(
            f"The value has {len(data)} bytes; a secret has at most {MAX_VALUE_BYTES}.",
            hint="Keep the file elsewhere and store only its key.",
        )
    if b"\0" in data:
        raise InvalidInput("The value has a NUL byte.", hint="Encode it first, for example with base64.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidInput("The value is not UTF-8 text.", hint="Encode it first, for example with base64.") from None
    warnings = list[str]()
    weak = _weakness(data, text)
    if weak and exposure is Exposure.ENVIRONMENT:
        raise InvalidInput(
            f"The value {weak}, so it cannot be kept out of what an agent shows: an agent that prints guesses would "
            "see which one is blacked out.",
            hint="If it is no secret, write it into the project's files. If it is one, get a longer value, or keep it "
            "on the host with `--scope connector`.",
        )
    if weak:
        warnings.append(f"The value {weak}: it is not safe against guessing.")
    if text != text.strip():
        warnings.append("The value begins or ends with a space or line end, which is kept.")
    return tuple(warnings)


def _weakness(data: bytes, text: str) -> str | None:
    """Why a value is easy to guess or impossible to redact, in words after "The value"; `None` when it is neither."""
    if len(data) < MIN_ENVIRONMENT_BYTES:
        return f"has fewer than {MIN_ENVIRONMENT_BYTES} bytes"
    return "is easy to guess" if _bits(_COMMON.sub("", text)) < _MIN_BITS else None


def _bits(text: str) -> float:
    """A rough measure of how many guesses a value takes: characters that repeat or count on add nothing."""
    if not text:
        return 0.0
    size = sum(
        many
        for many, pattern in ((10, "[0-9]"), (26, "[a-z]"), (26, "[A-Z]"), (64, "[^0-9A-Za-z]"))
        if re.search(pattern, text)
    )
    surprising = 1 + sum(abs(ord(char) - ord(before)) > 1 for before, char in pairwise(text))
    # A value that is one piece over and over is worth that piece.
    period = (text + text).find(text, 1)
    return min(surprising, period) * math.log2(size)


def _shown(text: str) -> str:
    return shorten(visible_line(text), 80)
