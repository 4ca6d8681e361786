"""The key that seals this installation's runs, if its settings name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from statlib.kernel.settings import Settings

if TYPE_CHECKING:  # its library is only needed to sign
    from statlib.evidence.signing import SigningKey


def signing_key(settings: Settings) -> SigningKey | None:
    """Refuses KeyUnusable; asked before a run begins, so that none ends unsigned that was to be signed."""
    if settings.evidence.signing_key_file is None:
        return None
    from statlib.evidence.signing import read_signing_key  # noqa: PLC0415 - see above

    return read_signing_key(settings.evidence.signing_key_file)
