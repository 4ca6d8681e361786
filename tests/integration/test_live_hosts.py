"""Whether somebody else has begun to use a server, as ``make soak`` asks before it stops its own."""

from __future__ import annotations

import pytest

import statlib
from statlib.kernel.settings import Settings
from tools import live_hosts as asked


def test_a_host_counts_for_as_long_as_it_is_registered(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "load_settings", lambda: settings)
    before = asked.live_hosts()
    with statlib.host("api", settings=settings):
        assert asked.live_hosts() == before + 1
    assert asked.live_hosts() == before
