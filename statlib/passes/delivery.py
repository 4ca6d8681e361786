"""Handing a message to somebody outside: a webhook or a command, one attempt, with what went wrong in one line.

Who calls keeps the debt and repeats; a receiver tells repeats by the key.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

import httpx

FAILURE_MAX = 500  # characters of a failure that are kept


@dataclass(frozen=True, slots=True)
class Webhook:
    url: str

    def send(self, text: str, *, key: str, timeout_s: float) -> str:
        """POST ``text`` as JSON with ``Idempotency-Key``. Empty if it was taken, else what went wrong."""
        headers = {"Content-Type": "application/json", "Idempotency-Key": key}
        try:
            answer = httpx.post(self.url, content=text.encode(), headers=headers, timeout=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            return f"the webhook failed: {type(error).__name__}"
        return "" if answer.is_success else f"the webhook answered {answer.status_code}"


@dataclass(frozen=True, slots=True)
class Command:
    """An operator's own command, as a list, without a shell; the message is its standard input."""

    words: Sequence[str]

    def send(self, text: str, *, key: str, timeout_s: float) -> str:
        """Run it with ``text``. Empty if it ended with 0, else what went wrong."""
        try:
            ran = subprocess.run(  # noqa: S603
                list(self.words),
                input=text,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"the command did not end within {timeout_s:g} s"
        except OSError as error:
            return f"the command could not be started: {error.strerror}"
        if ran.returncode == 0:
            return ""
        return " ".join(f"the command ended with {ran.returncode}: {ran.stderr}".split())[:FAILURE_MAX]


Receiver = Webhook | Command
