from tests.backfilling import bench, fill_notes
from tests.postgres import Database


def test_a_backfill_goes_from_registration_to_validated_completion(database: Database) -> None:
    fill_notes(database)
    with bench(database) as b:
        assert b.lifecycle() == "pending"
        assert b.worker().turn() is None, "nothing that was not started is claimed"
        b.start()
        assert b.row()["bound"] == [3, 5]
        assert b.drive() == "completed"
        row = b.row()
        assert row["checkpoint"] == [3, 5]
        assert row["rowsChanged"] == 15
        assert [touched for *_, touched in b.notes()] == [1] * 15
