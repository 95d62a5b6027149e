"""What a secret may be called, where it may go, and which values are refused."""

from __future__ import annotations

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.words import Exposure
from kortix_tui.vault import rules
from kortix_tui.vault.records import MAX_VALUE_BYTES
from kortix_tui.vault.secret import Secret

ANY = pytest.mark.parametrize("exposure", list(Exposure))


@pytest.mark.parametrize("text", ["a", "A.b_c-9", "9", "x" * 128])
def test_identifiers(text: str) -> None:
    assert rules.check_identifier(text) == text


@pytest.mark.parametrize("text", ["", "-a", ".a", "_a", "a b", "a\n", "ä", "x" * 129, "a/b", "\x1b[31m"])
def test_what_is_no_identifier(text: str) -> None:
    with pytest.raises(InvalidInput, match="identifier") as caught:
        rules.check_identifier(text)
    assert caught.value.hint and "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "_A",
        "STRIPE_KEY",
        "X" * 64,
        "PATHS",
        "MY_PATH",
        "USERS",
        "GITHUB_TOKEN",
        "PROXY",
        "HOME_URL",
        "LDAP_PASSWORD",
    ],
)
def test_names(text: str) -> None:
    assert rules.check_name(text) == text


@pytest.mark.parametrize(
    "text", ["PATH", "HOME", "LD_PRELOAD", "LD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "PYTHONSTARTUP",
             "GIT_SSH_COMMAND", "GIT_CONFIG_COUNT", "BASH_ENV", "ENV", "IFS", "SHELL", "NODE_OPTIONS", "HTTPS_PROXY",
             "ALL_PROXY", "NO_PROXY", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "SSL_CERT_FILE", "PAGER", "PS4",
             "BASH_FUNC_X", "XDG_CONFIG_HOME", "SSH_AUTH_SOCK"],
)  # fmt: skip
def test_names_that_change_what_is_run_are_refused_with_a_reason(text: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{text}`: it changes"):
        rules.check_name(text)


@pytest.mark.parametrize("text", ["KORTIX_TOKEN", "KORTIX_X"])
def test_reserved_names(text: str) -> None:
    with pytest.raises(InvalidInput, match="reserved"):
        rules.check_name(text)


@pytest.mark.parametrize(
    ("text", "guess"),
    [("stripe_key", "STRIPE_KEY"), ("Stripe-Key", "STRIPE_KEY"), ("9A", None), ("", None), ("A B", "A_B"),
     ("A\n", "A_"), ("X" * 65, None)],
)  # fmt: skip
def test_what_is_no_name(text: str, guess: str | None) -> None:
    with pytest.raises(InvalidInput, match="environment variable") as caught:
        rules.check_name(text)
    assert ("Did you mean" in (caught.value.hint or "")) is (guess is not None)
    assert guess is None or f"`{guess}`?" in (caught.value.hint or "")


def test_every_providers_key_is_an_allowed_name() -> None:
    assert {rules.check_name(name) for name in rules.PROVIDER_KEYS} == rules.PROVIDER_KEYS


@pytest.mark.parametrize(
    ("text", "exposure"),
    [("environment", Exposure.ENVIRONMENT), ("env", Exposure.ENVIRONMENT), ("runtime", Exposure.ENVIRONMENT),
     ("egress-enforced", Exposure.EGRESS), ("egress", Exposure.EGRESS), ("connector", Exposure.CONNECTOR),
     ("broker", Exposure.CONNECTOR), ("none", Exposure.NONE), ("denied", Exposure.NONE),
     (" Connector ", Exposure.CONNECTOR)],
)  # fmt: skip
def test_exposures_and_their_aliases(text: str, exposure: Exposure) -> None:
    assert rules.read_exposure(text) is exposure


@pytest.mark.parametrize(
    ("text", "hint"), [("conector", "`connector`"), ("", "connector, egress-enforced"), ("x\x1b", "none")]
)
def test_an_unknown_exposure(text: str, hint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        rules.read_exposure(text)
    assert hint in (caught.value.hint or "") and "\x1b" not in str(caught.value)


def test_the_exposure_of_a_new_secret() -> None:
    tight = Exposure.CONNECTOR
    assert rules.exposure_of_new("STRIPE_KEY", None, Exposure.ENVIRONMENT) == (Exposure.ENVIRONMENT, False)
    assert rules.exposure_of_new("STRIPE_KEY", None, tight) == (tight, False)
    assert rules.exposure_of_new("OPENAI_API_KEY", None, Exposure.ENVIRONMENT) == (Exposure.NONE, True)
    assert rules.exposure_of_new("OPENAI_API_KEY", Exposure.ENVIRONMENT, tight) == (Exposure.ENVIRONMENT, False)
    assert rules.exposure_of_new("OPENAI_API_KEY", Exposure.NONE, tight) == (Exposure.NONE, True)
    assert rules.exposure_of_new("STRIPE_KEY", Exposure.NONE, tight) == (Exposure.NONE, False)


@pytest.mark.parametrize(
    ("text", "host"), [("api.stripe.com", "api.stripe.com"), ("API.Example.com.", "api.example.com")]
)
def test_hosts(text: str, host: str) -> None:
    assert rules.check_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "*.example.com",
        "https://a.b",
        "a.b:443",
        "a.b/c",
        "1.2.3.4",
        "[::1]",
        "a..b",
        "-a.b",
        "a b.c",
        "ä.b",
    ],
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(InvalidInput, match="host name"):
        rules.check_host(text)


@ANY
@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"", "empty"),
        (b"x" * (MAX_VALUE_BYTES + 1), str(MAX_VALUE_BYTES + 1)),
        (b"abc\0defghijk", "NUL"),
        (b"\xff" * 20, "UTF-8"),
    ],
)
def test_what_is_no_value(value: bytes, words: str, exposure: Exposure) -> None:
    with pytest.raises(InvalidInput, match=words) as caught:
        rules.check_value(value, exposure)
    assert caught.value.hint


@ANY
def test_the_longest_value(exposure: Exposure) -> None:
    value = secrets.token_urlsafe(MAX_VALUE_BYTES)[:MAX_VALUE_BYTES].encode()
    assert rules.check_value(Secret(value), exposure) == ()


WEAK = [
    "true", "1234567", "aaaaaaaa", "12345678", "abcdefghijklmnop", "98765432109876543210", "password", "Password123!",
    "changeme", "production", "localhost", "00000000000000000000", "abababababababab", "20240131",
    "changeme-changeme", "my-secret-key",
    "CHANGE_ME", "test", "your-api-key-here", "        ",
]  # fmt: skip


@pytest.mark.parametrize("value", WEAK)
def test_values_that_cannot_be_redacted_are_refused_for_the_environment_only(value: str) -> None:
    with pytest.raises(InvalidInput, match="blacked out") as caught:
        rules.check_value(value.encode(), Exposure.ENVIRONMENT)
    assert "--scope connector" in (caught.value.hint or "")
    for exposure in (Exposure.CONNECTOR, Exposure.EGRESS, Exposure.NONE):
        assert "guess" in rules.check_value(value.encode(), exposure)[0]


@pytest.mark.parametrize(
    "value",
    [
        "wqe7fu2x-Qz",
        "sk-proj-0kXb",
        "a8Kd03lZ",
        "f3a9c1d2",
        "correct horse battery",
        "postgres://app:Zk3p9Q@db/app",
        "日本語のパスワード",
    ],
)
def test_values_that_are_good_enough(value: str) -> None:
    assert rules.check_value(value.encode(), Exposure.ENVIRONMENT) == ()


def test_random_values_are_nearly_always_good_enough() -> None:
    made = [secrets.token_hex(8) for _ in range(300)] + [secrets.token_urlsafe(9) for _ in range(300)]
    assert all(rules.check_value(value.encode(), Exposure.ENVIRONMENT) == () for value in made)


@pytest.mark.parametrize("value", ["k3J9-sdf8-Qw\n", " k3J9-sdf8-Qw"])
def test_space_around_a_value_is_warned_of(value: str) -> None:
    (warning,) = rules.check_value(value.encode(), Exposure.ENVIRONMENT)
    assert "space or line end" in warning


@given(st.text(min_size=4, max_size=40, alphabet=st.characters(codec="utf-8", categories=["L", "N", "P"])))
def test_no_message_quotes_a_value(value: str) -> None:
    marked = f"{value}\x1b{value}"
    for exposure in Exposure:
        try:
            said = " ".join(rules.check_value(marked.encode(), exposure))
        except InvalidInput as error:
            said = str(error)
        assert marked not in said
