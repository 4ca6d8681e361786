"""What may be shown of an address, and which addresses are refused before any server is asked."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import MongoSettings, Settings
from statlib.mongo.connection import connect, shown_address
from statlib.mongo.reasons import MongoReason


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("mongodb://h:1", "mongodb://h:1"),
        ("mongodb://u:p%40ss@h:1,g:2/admin?authMechanismProperties=TOKEN:x", "mongodb://h:1,g:2"),
        ("mongodb://u:p@ss@h:1/", "mongodb://h:1"),
        ("mongodb+srv://u:secret@cluster.example/?x=y", "mongodb+srv://cluster.example"),
        ("mongodb://h?password=secret", "mongodb://h"),
    ],
)
def test_an_address_is_shown_without_credentials_and_options(uri: str, shown: str) -> None:
    assert shown_address(uri) == shown


@pytest.mark.parametrize(
    "uri", ["u:secret@h", "http://u:secret@h/", "", "mongodb:/u:secret@h", "mongodb://u:secret/x@h"]
)
def test_what_is_no_address_is_not_shown_with_its_credentials(uri: str) -> None:
    assert "secret" not in shown_address(uri)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("", MongoReason.NoDeployment),
        ("u:secret@h", MongoReason.AddressInvalid),
        ("mongodb://u:secret@h:port/", MongoReason.AddressInvalid),
        ("mongodb://h/?tls=perhaps", MongoReason.AddressInvalid),
        ("mongodb://h/?replicaset=rs0&retryWritess=true", MongoReason.AddressInvalid),
        ("mongodb://127.0.0.1:1/?replicaSet=rs0", MongoReason.ServerUnreachable),
    ],
)
def test_an_unusable_address_is_refused_in_one_line_with_its_remedy(uri: str, reason: MongoReason) -> None:
    settings = Settings(mongo=MongoSettings(uri=SecretStr(uri), server_selection_timeout_s=0.2))
    with pytest.raises(Refusal) as refused:
        connect(settings)
    assert refused.value.reason is reason
    assert "secret" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "statlib up" in refused.value.remedy or "mongo.uri" in refused.value.remedy
