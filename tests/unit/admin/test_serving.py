"""Where the boundary may listen."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from statlib.admin.reasons import TokenReason
from statlib.admin.serving import Address, _bound
from statlib.kernel.refusals import Fault, Refusal, SettingsReason


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    Address(host).require_safe()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "", "boundary.example"])
def test_an_address_that_others_reach_needs_tls_or_a_proxy(host: str, tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        Address(host).require_safe()
    assert refused.value.reason is TokenReason.PublicWithoutTls
    Address(host, behind_proxy=True).require_safe()
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    certificate.touch()
    key.touch()
    Address(host, certificate=certificate, key=key).require_safe()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"certificate": Path("there")}, TokenReason.PublicWithoutTls),
        ({"key": Path("there")}, TokenReason.PublicWithoutTls),
        ({"certificate": Path("absent"), "key": Path("there")}, SettingsReason.InputUnreadable),
        ({"certificate": Path("there"), "key": Path("absent")}, SettingsReason.InputUnreadable),
    ],
)
def test_half_of_a_key_pair_is_refused(tmp_path: Path, given: dict[str, Path], reason: Any) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(Refusal) as refused:
        Address(**{name: tmp_path / path for name, path in given.items()}).require_safe()  # type: ignore[arg-type]
    assert refused.value.reason is reason


def test_a_port_that_is_taken_is_a_fault_with_its_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(Fault, match="cannot listen") as fault:
        _bound(Address(port=taken.getsockname()[1]))
    assert "--port" in fault.value.remedy
