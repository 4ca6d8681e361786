"""Print how many hosts are registered and alive, by the deployment that the settings name."""

from __future__ import annotations

from statlib.kernel.settings import load_settings
from statlib.mongo.connection import connected
from statlib.statistics.documents import MEMBER
from statlib.statistics.hosts import live_filter


def live_hosts() -> int:
    with connected(load_settings(), app_name="statlib-soak") as mongo:
        return mongo.collection(MEMBER).count_documents(live_filter(mongo))


if __name__ == "__main__":
    print(live_hosts())
