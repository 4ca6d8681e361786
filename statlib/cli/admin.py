"""``statlib admin``: serve the boundary, and keep its tokens."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from statlib.admin.principals import Capability
from statlib.cli.output import answer, json_option

if TYPE_CHECKING:
    from statlib.admin.tokens import StoredToken, Tokens

PORT_DEFAULT = 8430
_FILE = click.Path(path_type=Path, dir_okay=False)


@click.group()
def admin() -> None:
    """Serve the admin boundary, and keep its tokens."""


@admin.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", default=PORT_DEFAULT, show_default=True, type=click.IntRange(0, 65_535), help="0: any free one."
)
@click.option("--tls-certificate", type=_FILE, help="The certificate chain, PEM.")
@click.option("--tls-key", type=_FILE, help="Its private key, PEM.")
@click.option("--behind-proxy", is_flag=True, help="A proxy in front ends TLS: listen without it.")
@json_option
def serve(host: str, port: int, tls_certificate: Path | None, tls_key: Path | None, behind_proxy: bool) -> None:
    """Be the deployment's admin boundary until SIGINT or SIGTERM.

    Whom it believes: the tokens of admin.token_file (by default tokens.json of the data folder) and, where
    configured, the issuer of admin.jwt. An address that others can reach is refused without TLS.
    """
    from statlib.admin.embedded import serve as serve_boundary  # noqa: PLC0415
    from statlib.admin.serving import Address  # noqa: PLC0415
    from statlib.kernel.settings import load_settings  # noqa: PLC0415
    from statlib.review.catalogue import REVIEW  # noqa: PLC0415

    address = Address(host, port, tls_certificate, tls_key, behind_proxy)
    serve_boundary(
        load_settings(), REVIEW, address, listening=lambda url: answer({"url": url}, f"the boundary listens on {url}")
    )


@admin.group()
def token() -> None:
    """Make, list and withdraw tokens. A running boundary notices at once."""


@token.command("new")
@click.argument("name")
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    required=True,
    type=click.Choice([capability.value for capability in Capability]),
    help="What it allows; may be given more than once.",
)
@json_option
def new_token(name: str, capabilities: tuple[str, ...]) -> None:
    """Make a token for NAME and show it, once.

    NAME may have two: hand out the new one, then withdraw the old one. A third replaces the oldest.
    """
    made = _tokens().mint(name, frozenset(map(Capability, capabilities)))
    answer({"name": name, "capabilities": sorted(capabilities), "token": made}, made)


@token.command("list")
@json_option
def list_tokens() -> None:
    """List live tokens, without their secrets."""
    found = _tokens().listed()
    answer({"tokens": [_shown(one) for one in found]}, [_line(one) for one in found] or "no tokens")


@token.command()
@click.argument("name")
@click.option("--id", "id_", help="Only the one that `statlib admin token list` shows under this id.")
@json_option
def revoke(name: str, id_: str | None) -> None:
    """Withdraw every token of NAME, or one of them."""
    gone = _tokens().revoke(name, id_=id_)
    answer({"revoked": [_shown(one) for one in gone]}, [f"withdrawn: {_line(one)}" for one in gone])


def _tokens() -> Tokens:
    from statlib.admin.authentication import token_file  # noqa: PLC0415
    from statlib.admin.tokens import Tokens  # noqa: PLC0415
    from statlib.kernel.settings import load_settings  # noqa: PLC0415

    return Tokens(token_file(load_settings()))


def _shown(one: StoredToken) -> dict[str, object]:
    return {
        "name": one.name,
        "id": one.id,
        "capabilities": sorted(one.capabilities),
        "created_at_utc": one.created_at_utc,
    }


def _line(one: StoredToken) -> str:
    made = f"{one.created_at_utc:%Y-%m-%d %H:%M} UTC"
    return f"{one.name}  id {one.id or '-'}  made {made}  {' '.join(sorted(one.capabilities))}"
