"""How programs learn of the only way to the network: the door, as the proxy that most of them know by environment."""

from __future__ import annotations

_DIRECT = "127.0.0.1,localhost,::1"
_NAMES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")


def proxy_environment(token: str, port: int) -> dict[str, str]:
    """Variables for programs that may reach the network.

    Args:
        token: The agent's token, which is the proxy's password.
        port: The loopback port that leads to the door.
    """
    proxy = f"http://kortix:{token}@127.0.0.1:{port}"
    wanted = dict.fromkeys(_NAMES, proxy)
    wanted["NO_PROXY"] = _DIRECT
    # Some programs read only one of the two spellings; curl, for example, HTTP_PROXY in lower case alone.
    everything = {**wanted, **{name.lower(): value for name, value in wanted.items()}}
    return {**everything, "NODE_USE_ENV_PROXY": "1"}
