"""Credentials are taken out of every text before it leaves for MLflow or the log."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

_USER_INFO = re.compile(r"(?<=://)[^/\s'\"?#]*@")
_SECRET_QUERY = re.compile(
    r"([?&][^=&\s'\"]*(?:signature|credential|token|key|secret|password|sig)[^=&\s'\"]*=)[^&\s'\"]+", re.IGNORECASE
)
_SECRET_NAME = re.compile(r"PASSWORD|TOKEN|SECRET|ACCESS_KEY|API_KEY|CREDENTIAL")
_SHORTEST = 6  # a shorter "secret" would blot out ordinary words


class Scrubber:
    """Knows the secrets in an environment and what credentials in a URI look like."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        values = {value for name, value in environ.items() if _SECRET_NAME.search(name) and "/" not in value[:1]}
        password = _password(environ.get("MLFLOW_TRACKING_URI", ""))
        values |= {password, unquote(password)}
        self._secrets = sorted((v for v in values if len(v) >= _SHORTEST), key=len, reverse=True)

    def __call__(self, text: str) -> str:
        """`text` without user names and passwords in URIs, signed query values and the environment's secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return _SECRET_QUERY.sub(r"\1***", _USER_INFO.sub("", text))


def _password(uri: str) -> str:
    try:
        return urlsplit(uri).password or ""
    except ValueError:
        return ""
