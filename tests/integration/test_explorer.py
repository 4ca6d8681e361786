"""The explorer's figures against a naive count of what is stored, with statistics on and off."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from uuid import uuid4

import pytest

from statlib.kernel.refusals import Refusal
from statlib.kernel.settings import Settings
from statlib.review.annotation_writer import SessionAct
from statlib.review.documents import PROJECTS
from statlib.review.screening import Decision
from statlib.runbook.explorer import Explorer
from statlib.runbook.fragments import Figure, Fragment, Table
from statlib.statistics.reasons import OperateReason
from tests.acts import Acts, stages_and_questions
from tests.reviews import ALL_FAMILIES, Review, review, settings_for


@pytest.fixture
def worked_on(emptied: Settings) -> Iterator[Review]:
    stages, questions = stages_and_questions()
    with review(
        emptied, studies=12, families=ALL_FAMILIES, members=3, searches=2, stages=stages, questions=questions,
        min_screenings=1,
    ) as made:  # fmt: skip
        acts, chance = Acts(made, made.host), random.Random(5)
        for study in range(10):
            for person in range(chance.randint(1, 3)):
                acts.screen(
                    study, person, Decision.INCLUDE if chance.random() < 0.8 else Decision.EXCLUDE, on_stage=False
                )
        for study in range(12):
            for person in range(3):
                with suppress(Refusal):
                    acts.annotate(
                        study,
                        person,
                        1,
                        chance.choice([SessionAct.SAVE, SessionAct.COMPLETE]),
                        study,
                        reconciliation=False,
                    )
        made.backfill_all()
        yield made


@pytest.fixture
def explorer(worked_on: Review) -> Iterator[Explorer]:
    opened = Explorer.of(str(worked_on.project), settings=worked_on.mongo.settings)
    yield opened
    opened.close()


def numbers(shown: Fragment) -> dict[str, dict[str, int]]:
    """The table of a figure: per row, amounts by part."""
    assert isinstance(shown, Figure)
    columns = [column.name.lower() for column in shown.numbers.columns[1:]]
    return {
        str(row[0]): dict(zip(columns, (int(str(cell)) for cell in row[1:]), strict=True)) for row in shown.numbers.rows
    }


def test_figures_show_what_a_naive_count_says(worked_on: Review, explorer: Explorer) -> None:
    truth = worked_on.whole_truth()
    agreement, workload = numbers(explorer.agreement()), numbers(explorer.workload())
    for number, member in enumerate(worked_on.members):
        name, scope = f"reviewer {number}", f"member/{member}"
        counted = truth["ReviewerScreening"][scope]
        assert agreement[name]["all"] == counted.get("Decisions", 0)
        assert agreement[name]["agreed"] == counted.get("Agreed", 0)
        screened = truth["MembershipScreening"][scope]
        assert workload[name]["waiting"] == screened.get("Available", 0)
        assert workload[name]["screened"] == screened.get("Screened", 0)
    first = worked_on.stages[1]
    backlog = truth["DomainReconciliation"][f"stage/{first}"]
    assert numbers(explorer.backlog())["first"]["awaiting it"] == backlog.get("Included/Awaiting", 0)
    funnel = numbers(explorer.funnel())["first"]
    assert funnel["all"] == truth["StageAnnotation"][f"stage/{first}"]["Population/Included"]
    assert (
        funnel["all"] - funnel["untouched"] == truth["StageAnnotation"][f"stage/{first}"]["Sessioned/Included/Started"]
    )
    mine = numbers(explorer.annotation_workload())["reviewer 0, first"]
    assert mine["completed"] == truth["ReviewerAnnotation"][f"stage/{first}/member/{worked_on.members[0]}"].get(
        "Completed", 0
    )


def test_answers_are_told_per_question_and_key(worked_on: Review, explorer: Explorer) -> None:
    shown = explorer.answers(stage=0)
    assert isinstance(shown, Table)
    counted = worked_on.whole_truth()["QuestionAnswers"]["project"]
    values = {key: n for key, n in counted.items() if "/Value/" in key}
    told = sorted(int(str(row[2])) for row in shown.rows)
    of_the_stage = {q["Id"] for q in worked_on.stored_project()["Questions"] if q["StageId"] == worked_on.stages[1]}
    assert told == sorted(n for key, n in values.items() if any(key.startswith(str(q)) for q in of_the_stage))
    assert "no 7" not in explorer.answers(stage=7).text()
    assert "2 annotation stages" in explorer.answers(stage=7).text().replace("\N{NO-BREAK SPACE}", " ")


def test_the_overview_says_where_the_numbers_come_from(worked_on: Review, explorer: Explorer) -> None:
    assert "stored counters" in explorer.overview().text()
    worked_on.gate(enabled=False)
    assert "calculated from the studies (ProjectDisabled)" in explorer.overview().text()
    assert isinstance(explorer.progress(), Figure)


def test_a_project_is_found_by_name_by_id_or_by_its_size(worked_on: Review) -> None:
    for wanted in ("test", str(worked_on.project), ""):
        found = Explorer.of(wanted, settings=worked_on.mongo.settings)
        assert found.project == worked_on.project
        found.close()
    with pytest.raises(Refusal) as refused:
        Explorer.of("no such review", settings=worked_on.mongo.settings)
    assert refused.value.reason is OperateReason.ProjectNotFound


def test_a_name_that_two_projects_bear_is_refused_and_an_id_of_theirs_is_not(worked_on: Review) -> None:
    other = worked_on.stored_project() | {"_id": uuid4()}
    worked_on.mongo.collection(PROJECTS).insert_one(other)
    with pytest.raises(Refusal, match="several projects are called test"):
        Explorer.of("test", settings=worked_on.mongo.settings)
    found = Explorer.of(str(worked_on.project), settings=worked_on.mongo.settings)
    assert found.project == worked_on.project
    found.close()


def test_a_review_without_anything_in_it_says_so_instead_of_drawing(emptied: Settings) -> None:
    with pytest.raises(Refusal) as refused:
        Explorer.of(settings=settings_for(emptied))
    assert "statlib load --simulated" in refused.value.detail
    with review(emptied, studies=2, families=ALL_FAMILIES) as empty:
        found = Explorer.of(settings=empty.mongo.settings)
        shown = (
            found.progress(),
            found.agreement(),
            found.workload(),
            found.funnel(),
            found.backlog(),
            found.answers(),
        )
        assert [one.text().startswith("Nothing to show") for one in shown] == [True] * 6
        found.close()
