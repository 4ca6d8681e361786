"""Loaded reviews in a real database: stored once, never overwritten, the project's controls before its studies."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from statlib.cli.main import main
from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings, load_settings
from statlib.mongo.connection import Mongo
from statlib.mongo.reasons import MongoReason
from statlib.review.documents import PROJECTS, STUDIES, Project, Study
from statlib.review.loading.detection import detect
from statlib.review.loading.review import LoadedReview, LoadReason
from statlib.review.loading.simulated import SimulatedReview
from statlib.review.loading.store import BATCH_STUDIES_MAX, StoredReview, per_study_order, store
from tests.oracles.real_data import real_review
from tests.servers import fail_command


def nothing(project: Project) -> None:
    del project


@pytest.fixture(scope="module")
def simulated() -> LoadedReview:
    return SimulatedReview(studies=BATCH_STUDIES_MAX + 20, events=100).load()


def stored_studies(mongo: Mongo, project: Project) -> list[dict[str, Any]]:
    return list(mongo.collection(STUDIES).find({"ProjectId": project.id}))


@pytest.mark.parametrize(
    ("name", "studies"),
    [
        ("rayyan_accident_prone", 1_224),
        ("dimitrov_snhl", 1_498),
        ("syrf_ndc_reporting_quality", 1_325),
        ("syrf_screening_export_format", 4),
        ("hardwicke2023_transparency", 800),
    ],
)
def test_a_real_review_is_stored_as_loaded(mongo: Mongo, name: str, studies: int) -> None:
    folder = real_review(name)
    review = detect(folder).load(folder)
    assert store(review, mongo, before_studies=nothing) == StoredReview(review.project.id, True, studies, 0)
    [project] = mongo.collection(PROJECTS).find()
    assert Project.from_bson(project) == review.project
    assert {s["_id"]: Study.from_bson(s) for s in stored_studies(mongo, review.project)} == {
        study.id: study for study in review.studies
    }


def test_loading_again_adds_and_overwrites_nothing(mongo: Mongo, simulated: LoadedReview) -> None:
    store(simulated, mongo, before_studies=nothing)
    saved = simulated.studies[0].id
    mongo.collection(STUDIES).update_one({"_id": saved}, {"$set": {"Audit.Version": 3, "Title": "edited"}})
    mongo.collection(PROJECTS).update_one({"_id": simulated.project.id}, {"$set": {"Name": "renamed"}})
    again = store(simulated, mongo, before_studies=nothing)
    assert again == StoredReview(simulated.project.id, False, 0, len(simulated.studies))
    study = mongo.collection(STUDIES).find_one({"_id": saved})
    assert study is not None
    assert (study["Audit"]["Version"], study["Title"]) == (3, "edited")
    assert mongo.collection(PROJECTS).distinct("Name") == ["renamed"]


def test_the_callback_runs_with_the_project_stored_and_no_study_yet(mongo: Mongo, simulated: LoadedReview) -> None:
    seen: list[tuple[Project, int, int]] = []

    def look(project: Project) -> None:
        projects = mongo.collection(PROJECTS).count_documents({"_id": project.id})
        seen.append((project, projects, mongo.collection(STUDIES).count_documents({})))

    store(simulated, mongo, before_studies=look)
    assert seen == [(simulated.project, 1, 0)]


def test_a_callback_that_fails_leaves_no_study_and_a_repetition_completes(
    mongo: Mongo, simulated: LoadedReview
) -> None:
    def fail(project: Project) -> None:
        raise Fault(f"no control for {project.name}")

    with pytest.raises(Fault, match="no control"):
        store(simulated, mongo, before_studies=fail)
    assert stored_studies(mongo, simulated.project) == []
    assert store(simulated, mongo, before_studies=nothing).studies_inserted == len(simulated.studies)


def test_a_load_that_is_cut_off_between_batches_is_completed_by_repeating_it(
    mongo: Mongo, simulated: LoadedReview
) -> None:
    def cut_off_the_second_batch() -> None:
        # The project is stored by findAndModify, each batch of studies by one update.
        with fail_command(mongo.client, ["update"], error_code=2, skip=1):
            store(simulated, mongo, before_studies=nothing)

    with pytest.raises(Exception, match="failCommand"):
        cut_off_the_second_batch()
    assert len(stored_studies(mongo, simulated.project)) == BATCH_STUDIES_MAX
    again = store(simulated, mongo, before_studies=nothing)
    assert again == StoredReview(simulated.project.id, False, 20, BATCH_STUDIES_MAX)


def test_a_batch_without_majority_is_unresolved_and_never_a_success(mongo: Mongo, simulated: LoadedReview) -> None:
    with (
        fail_command(mongo.client, ["commitTransaction"], write_concern_error=64, times=20),
        pytest.raises(Refusal) as raised,
    ):
        store(simulated, mongo, before_studies=nothing)
    assert raised.value.reason is MongoReason.CommitOutcomeUnknown


def test_a_study_that_cannot_be_inserted_is_a_fault_and_never_counted_as_present(
    mongo: Mongo, simulated: LoadedReview
) -> None:
    mongo.collection(STUDIES).create_index("SourceKey", unique=True)
    mongo.collection(STUDIES).insert_one({"_id": "another", "SourceKey": simulated.studies[0].to_bson()["SourceKey"]})
    with pytest.raises(Fault, match="not all studies could be stored"):
        store(simulated, mongo, before_studies=nothing)


def test_another_provenance_under_the_same_id_is_refused_and_nothing_written(mongo: Mongo) -> None:
    store(SimulatedReview(studies=5, name="same").load(), mongo, before_studies=nothing)
    other = SimulatedReview(studies=9, name="same").load()
    with pytest.raises(Refusal, match="another provenance") as raised:
        store(other, mongo, before_studies=nothing)
    assert raised.value.reason is LoadReason.ProjectConflict
    assert len(stored_studies(mongo, other.project)) == 5


def test_two_loads_at_once_store_every_study_once(mongo: Mongo, simulated: LoadedReview) -> None:
    together = threading.Barrier(2)
    results: list[StoredReview] = []

    def meet(project: Project) -> None:
        del project
        together.wait(20)

    def run() -> None:
        results.append(store(simulated, mongo, before_studies=meet))

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert sum(result.project_inserted for result in results) == 1
    assert sum(result.studies_inserted for result in results) == len(simulated.studies)
    assert len(stored_studies(mongo, simulated.project)) == len(simulated.studies)


def test_per_study_order_keeps_every_event_in_recorded_order(simulated: LoadedReview) -> None:
    ordered = per_study_order(reversed(simulated.events))
    assert sorted(event.seq for events in ordered.values() for event in events) == [e.seq for e in simulated.events]
    for study, events in ordered.items():
        assert [event.seq for event in events] == sorted(event.seq for event in events)
        assert {event.study_id for event in events} == {study}
    assert next(iter(ordered)) == simulated.events[0].study_id


class TestCommand:
    """``statlib load``"""

    @pytest.fixture(autouse=True)
    def _deployment(self, mongo: Mongo, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STATLIB__MONGO__URI", settings.mongo.uri.get_secret_value())
        monkeypatch.setenv("STATLIB__MONGO__DATABASE", settings.mongo.database)
        monkeypatch.setenv("STATLIB__DATA_DIR", str(settings.data_dir))

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["load", *arguments])

    def test_a_real_log_loads_with_exit_code_0_and_says_what_it_is(self) -> None:
        result = self.run(str(real_review("rayyan_accident_prone")))
        assert result.exit_code == 0, result.output
        for part in ("1,224 stored", "2,825 to replay, of which 187 change nothing", "simulated  nothing"):
            assert part in result.output

    def test_the_simulated_review_loads_and_says_that_it_is_made_up(self, mongo: Mongo) -> None:
        result = self.run("--simulated", "--studies", "30", "--reviewers", "4", "--seed", "5", "--json")
        assert result.exit_code == 0, result.output
        [report] = json.loads(result.stdout)["projects"]
        assert "made up from seed 5" in report["simulated"]
        assert report["stored"]["studies_inserted"] == mongo.collection(STUDIES).count_documents({}) == 30
        assert len(report["reviewers"]) == 4

    def test_the_first_line_says_once_that_a_review_is_simulated(self) -> None:
        first = self.run("--simulated", "--studies", "3").stdout.splitlines()[0]
        assert first.lower().count("simulated review") == 1
        first = self.run("--simulated", "--studies", "3", "--name", "Mine").stdout.splitlines()[0]
        assert first.startswith("Mine (simulated review): project ")

    def test_both_stages_of_a_real_review_load_as_a_project_each(self, mongo: Mongo) -> None:
        folder = real_review("dimitrov_snhl")
        result = self.run(str(folder))
        assert result.exit_code == 0, result.output
        assert sorted(mongo.collection(PROJECTS).distinct("Name")) == [
            "dimitrov_snhl, full text",
            "dimitrov_snhl, title and abstract",
        ]
        for part in ("1,498 stored", "18 stored", "not read   searches.csv", "tiab_screening.csv, row 44: ID 43 was"):
            assert part in result.stdout
        report = json.loads(self.run(str(folder), "--review", "full text", "--json").stdout)
        assert [(project["name"], project["stored"]["studies_present"]) for project in report["projects"]] == [
            ("dimitrov_snhl, full text", 18)
        ]

    def test_a_real_export_with_a_misspelling_loads_whole_and_names_the_row(self) -> None:
        result = self.run(str(real_review("syrf_ndc_reporting_quality")))
        assert result.exit_code == 0, result.output
        for part in ("1,325 stored", "screening.csv, row 1018: 'Exluded' is read as 'Excluded'", "reviewer n's"):
            assert part in result.stdout

    def test_one_labelled_review_of_several_loads_under_a_given_name_and_seed(self, mongo: Mongo) -> None:
        result = self.run(
            str(real_review("synergy")), "--review", "Nelson_2002", "--name", "Nelson", "--seed", "7", "--json"
        )
        assert result.exit_code == 0, result.output
        [report] = json.loads(result.stdout)["projects"]
        assert (report["name"], report["seed"], report["stored"]["studies_inserted"]) == ("Nelson", 7, 368)
        assert "made up from seed 7" in report["simulated"]
        assert mongo.collection(STUDIES).count_documents({"SourceLabel": True}) == 80

    def test_a_review_that_the_export_does_not_hold_is_refused_with_those_it_does(self, mongo: Mongo) -> None:
        result = self.run(str(real_review("synergy")), "--review", "Nobody_1999")
        assert result.exit_code == 2
        assert "ReviewNotNamed" in result.stderr
        assert "Nelson_2002" in result.stderr
        assert mongo.collection(PROJECTS).count_documents({}) == 0

    def test_rows_that_did_not_load_are_named_and_the_exit_code_says_so(self, mongo: Mongo, tmp_path: Path) -> None:
        rows = "\n".join(f"{number},9,1" for number in range(25))
        (tmp_path / "sheet.csv").write_text(f"ID,R1_decision,R2_decision\n{rows}\nlast,1,1\n")
        result = self.run(str(tmp_path))
        assert result.exit_code == 1
        assert "25 rows were not loaded" in result.output
        assert "sheet.csv, row 21: R1_decision '9' is not a decision" in result.output
        assert "sheet.csv, row 22:" not in result.output
        assert "and 5 more" in result.output
        assert mongo.collection(STUDIES).count_documents({}) == 1
        listed = self.run(str(tmp_path), "--json")
        assert listed.exit_code == 1
        [report] = json.loads(listed.stdout)["projects"]
        assert len(report["problems"]) == 25

    def test_an_export_of_headers_alone_stores_and_allows_nothing(
        self, mongo: Mongo, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        settings.data_dir.mkdir()
        config = settings.data_dir / "statlib.toml"
        config.write_text("[statistics]\nwrites = true\n")
        monkeypatch.setenv("STATLIB_CONFIG", str(config))
        folder = tmp_path / "export"
        folder.mkdir()
        (folder / "sheet.csv").write_text("ID,R1_decision,R2_decision\n")
        result = self.run(str(folder))
        assert result.exit_code == 1
        assert result.stdout.splitlines()[-1] == "no rows: nothing was stored"
        assert mongo.collection(PROJECTS).count_documents({}) == 0
        assert load_settings().statistics.allowlist == frozenset()

    def test_studies_that_only_the_log_knows_are_counted(self, tmp_path: Path) -> None:
        (tmp_path / "articles.csv").write_text("article_id,title\n10,First\n")
        row = "{},2021-05-12T11:08:41.919Z,ann,{},decision,,1\n"
        log = "seq,created_at,reviewer,article_id,kind,key,value\n" + row.format(1, 10) + row.format(2, 99)
        (tmp_path / "log.csv").write_text(log)
        result = self.run(str(tmp_path))
        assert result.exit_code == 0, result.output
        assert "1 study that no row describes" in result.stdout

    def test_an_unknown_folder_is_one_line_and_a_remedy(self, mongo: Mongo, tmp_path: Path) -> None:
        result = self.run(str(tmp_path))
        assert result.exit_code == 2
        assert "FormatUnknown" in result.stderr
        assert "remedy:" in result.stderr
        assert mongo.collection(PROJECTS).count_documents({}) == 0

    @pytest.mark.parametrize(
        "arguments",
        [
            (),
            ("folder", "--simulated"),
            ("folder", "--studies", "3"),
            ("--simulated", "--studies", "x"),
            ("--simulated", "--review", "x"),
        ],
    )
    def test_contradicting_arguments_are_bad_usage(self, arguments: tuple[str, ...]) -> None:
        assert self.run(*arguments).exit_code == 2

    def test_a_seed_for_what_makes_nothing_up_is_bad_usage(self, mongo: Mongo, tmp_path: Path) -> None:
        (tmp_path / "sheet.csv").write_text("ID,R1_decision,R2_decision\n1,1,1\n")
        result = self.run(str(tmp_path), "--seed", "5")
        assert result.exit_code == 2
        assert "nothing in a two-reviewer spreadsheet is made up from a seed" in result.stderr
        assert mongo.collection(PROJECTS).count_documents({}) == 0

    def test_an_annotation_export_loads_and_says_what_of_it_is_made_up(self) -> None:
        result = self.run(str(real_review("hardwicke2023_transparency")))
        assert result.exit_code == 0, result.output
        for part in (
            "800 stored",
            "1 study that no row describes",
            "979 sessions and 456 reconciliations stand in the end, with 20,119 answers",
            "5 rows were loaded, but:",
            "Simulated reviewer 1 and Simulated reviewer 2 include every record that was annotated",
        ):
            assert part in result.stdout

    def test_under_the_embedded_default_the_project_joins_the_allowlist_once(
        self, settings: Settings, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        settings.data_dir.mkdir()
        config = settings.data_dir / "statlib.toml"
        config.write_text("[statistics]\nwrites = true\n")
        monkeypatch.setenv("STATLIB_CONFIG", str(config))
        for _ in range(2):
            assert self.run("--simulated", "--studies", "3", "--name", "mine").exit_code == 0
        expected = SimulatedReview(studies=3, name="mine").load().project.id
        assert load_settings().statistics.allowlist == {expected}
