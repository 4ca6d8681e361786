"""The anchor: a run's head in the database's audit catches a folder that was rewritten with every hash made right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from statlib.admin.client import AdminClient
from statlib.admin.embedded import boundary
from statlib.admin.reasons import AdminReason
from statlib.admin.runs import AnchorReason
from statlib.evidence.anchors import ANCHOR_ACTION, Anchor, AnchorPhase
from statlib.evidence.entries import EntryKind
from statlib.evidence.journal import Journal, read_journal
from statlib.evidence.verify import Assurance, Requirement, verify
from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import EvidenceSettings, Settings
from statlib.mongo.connection import connected
from statlib.passes.audit import AUDIT
from statlib.review.catalogue import REVIEW
from statlib.runbook.anchoring import anchor_close, anchor_start, anchors_of
from statlib.runbook.archive import RunFolder, new_run
from statlib.runbook.reasons import RunbookReason
from tests.unit.evidence.soak_run import Raw, Story, leave_bundle

RUN = "0123456789ab"
REQUIRED = frozenset({Requirement.ANCHOR})


@pytest.fixture
def settings(emptied: Settings, tmp_path: Path) -> Settings:
    return emptied.model_copy(update={"data_dir": tmp_path / "data"})


@pytest.fixture
def client(settings: Settings) -> Iterator[AdminClient]:
    with boundary(settings, REVIEW) as opened:
        yield opened


def anchored(client: AdminClient, folder: Path) -> list[Anchor]:
    """Anchor the sealed folder as its run would have, at start and end."""
    entries = read_journal(folder / "evidence/journal.jsonl")
    for phase, entry in ((AnchorPhase.STARTED, entries[0]), (AnchorPhase.CLOSED, entries[-1])):
        client.anchor(RUN, runbook="soak_evidence", phase=phase, head=entry.hash, entries=entry.seq)
    return [anchor.plain() for anchor in client.anchors(RUN)]


def test_an_anchored_run_is_accepted_as_anchored(client: AdminClient, tmp_path: Path) -> None:
    folder = leave_bundle(tmp_path / "run", Story())
    found = verify(folder, anchors=anchored(client, folder), require=REQUIRED)
    assert found.ok, found.findings
    assert found.assurance is Assurance.ANCHORED


def test_a_run_rewritten_with_every_hash_made_right_is_caught_by_its_anchor(
    client: AdminClient, tmp_path: Path
) -> None:
    failed = leave_bundle(tmp_path / "run", Story(raw=Raw().without("parity")))
    anchors = anchored(client, failed)
    forged = leave_bundle(tmp_path / "forged", Story())
    assert verify(forged).ok  # by itself it is in order
    found = verify(forged, anchors=anchors, require=REQUIRED)
    assert {finding.check.value for finding in found.findings} == {"anchor"}
    assert "is not the line that was anchored: the database recorded" in str(found.findings[0])


@pytest.mark.parametrize("phases", [[], [AnchorPhase.STARTED]], ids=["none", "the start alone"])
def test_a_run_whose_end_was_not_anchored_is_refused_where_an_anchor_is_required(
    phases: list[AnchorPhase], client: AdminClient, tmp_path: Path
) -> None:
    folder = leave_bundle(tmp_path / "run", Story())
    first = read_journal(folder / "evidence/journal.jsonl")[0]
    for phase in phases:
        client.anchor(RUN, runbook="soak_evidence", phase=phase, head=first.hash, entries=1)
    anchors = [anchor.plain() for anchor in client.anchors(RUN)]
    assert verify(folder, anchors=anchors).ok
    assert "is not in the database's audit" in str(verify(folder, anchors=anchors, require=REQUIRED).findings)


def test_a_closed_run_is_not_anchored_otherwise(client: AdminClient) -> None:
    given = {"runbook": "soak_evidence", "phase": AnchorPhase.CLOSED, "entries": 9}
    first = client.anchor(RUN, head="1" * 64, **given)  # type: ignore[arg-type]
    assert client.anchor(RUN, head="1" * 64, **given).head == first.head  # type: ignore[arg-type]
    for head, phase in (("2" * 64, AnchorPhase.CLOSED), ("1" * 64, AnchorPhase.STARTED)):
        with pytest.raises(Refusal) as refused:
            client.anchor(RUN, runbook="soak_evidence", phase=phase, head=head, entries=9)
        assert refused.value.reason is AnchorReason.RunAnchoredOtherwise
        assert refused.value.state["head"] == "1" * 64
    assert {anchor.head for anchor in client.anchors(RUN)} == {"1" * 64}


def test_two_closings_on_record_contradict_each_other(client: AdminClient, tmp_path: Path) -> None:
    """What a race past the check would leave: whichever folder is shown, the other anchor speaks against it."""
    folder = leave_bundle(tmp_path / "run", Story())
    (start, close) = anchored(client, folder)
    other = close.model_copy(update={"head": "2" * 64})
    assert verify(folder, anchors=[start, close], require=REQUIRED).ok
    assert not verify(folder, anchors=[start, close, other], require=REQUIRED).ok


def test_an_anchor_is_an_audit_record_of_who_sent_it(client: AdminClient, settings: Settings) -> None:
    client.anchor(RUN, runbook="soak_evidence", phase=AnchorPhase.CLOSED, head="1" * 64, entries=9)
    with connected(settings) as mongo:
        record = mongo.collection(AUDIT).find_one({"Target": RUN})
    assert record is not None
    assert (record["Action"], record["Outcome"], record["After"]["head"]) == (ANCHOR_ACTION, "Accepted", "1" * 64)
    assert record["Principal"]


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return new_run(tmp_path / "reports", "soak_evidence")


def started(run: RunFolder, settings: Settings, *, offline: bool = False) -> Journal:
    journal = Journal(run.journal, clock=settings.time)
    journal.append(EntryKind.RunStarted, runbook="soak_evidence", run_id=run.run_id, apply=False, parameters={})
    anchor_start(journal, run, settings, offline=offline)
    return journal


def test_a_run_anchors_its_start_and_its_end_by_itself(run: RunFolder, settings: Settings) -> None:
    with started(run, settings) as journal:
        found = anchor_close(journal, run, settings)
        head = journal.head
    assert found.anchor is not None
    assert found.anchor.head == head
    assert [anchor.phase for anchor in anchors_of(run.run_id, settings)] == list(AnchorPhase)


def unreachable(settings: Settings, policy: str) -> Settings:
    admin = settings.admin.model_copy(update={"url": "http://127.0.0.1:9"})
    evidence = EvidenceSettings.model_validate({"anchor": policy})
    return settings.model_copy(update={"admin": admin, "evidence": evidence})


@pytest.mark.parametrize("policy", ["wanted", "required"])
def test_a_run_that_asks_a_deployment_is_refused_where_none_answers(
    policy: str, run: RunFolder, settings: Settings
) -> None:
    with pytest.raises(Refusal) as refused:
        started(run, unreachable(settings, policy))
    expected = {"wanted": AdminReason.BoundaryUnreachable, "required": RunbookReason.AnchorMissing}
    assert refused.value.reason is expected[policy]


def test_a_wanted_anchor_that_cannot_be_had_is_said_and_a_run_that_needs_none_goes_on(
    run: RunFolder, settings: Settings
) -> None:
    with started(run, unreachable(settings, "wanted"), offline=True) as journal:
        assert "not anchored: Refusal: BoundaryUnreachable" in str(journal.entries[-1].data["text"])
        assert anchor_close(journal, run, unreachable(settings, "wanted")).anchor is None


def test_a_required_anchor_that_cannot_be_had_refuses_the_run(run: RunFolder, settings: Settings) -> None:
    with pytest.raises(Refusal) as refused:
        started(run, unreachable(settings, "required"))
    assert refused.value.reason is RunbookReason.AnchorMissing


@pytest.mark.parametrize("policy", ["off", "wanted"])
def test_nothing_is_asked_where_nothing_is_wanted_or_configured(policy: str, run: RunFolder) -> None:
    with started(run, Settings(evidence=EvidenceSettings.model_validate({"anchor": policy}))) as journal:
        assert len(journal.entries) == 1
