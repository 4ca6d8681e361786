"""The client gives the boundary's answer on as it was given."""

from __future__ import annotations

import httpx
import pytest

from statlib.admin.client import AdminClient
from statlib.kernel.refusals import Refusal
from statlib.statistics.reasons import OperateReason

OWN = "Try again at 12:00."


@pytest.mark.parametrize("remedy", ["", OWN])
def test_a_refusal_keeps_the_remedy_that_the_boundary_gave(remedy: str) -> None:
    sent = Refusal(OperateReason.ProjectNotFound, "3f1c", remedy=remedy)
    with pytest.raises(Refusal) as refused:
        AdminClient._answer(httpx.Response(404, json=sent.as_wire()), dict)
    assert refused.value.reason is OperateReason.ProjectNotFound
    assert refused.value.remedy == (remedy or OperateReason.ProjectNotFound.remedy)
