"""statlib keeps derived data exact under concurrent saves, and lets operators prove it.

The names below are the public ones. Each is imported when it is first used, so that a command or an application pays
for what it calls and needs the extras of nothing else.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from statlib.application import boundary, host, load, read_bundle, up
    from statlib.kernel.refusals import Fault, Refusal
    from statlib.mongo.command_counter import counting
    from statlib.review.annotation_writer import AnnotationWriter, SessionAct
    from statlib.review.claims import ClaimWriter
    from statlib.review.loading.simulated import SimulatedReview
    from statlib.review.reservation_writer import ReleaseCause, ReservationWriter
    from statlib.review.screening import Decision
    from statlib.review.screening_writer import ScreeningWriter
    from statlib.statistics.hosts import Host, Role
    from statlib.statistics.outcomes import Saved
    from statlib.statistics.reader import ALL, Bundle

__version__ = version("statlib")
__all__ = [
    "ALL",
    "AnnotationWriter",
    "Bundle",
    "ClaimWriter",
    "Decision",
    "Fault",
    "Host",
    "Refusal",
    "ReleaseCause",
    "ReservationWriter",
    "Role",
    "Saved",
    "ScreeningWriter",
    "SessionAct",
    "SimulatedReview",
    "__version__",
    "boundary",
    "counting",
    "host",
    "load",
    "read_bundle",
    "up",
]

_DEFINED_IN = {
    "ALL": "statlib.statistics.reader",
    "AnnotationWriter": "statlib.review.annotation_writer",
    "Bundle": "statlib.statistics.reader",
    "ClaimWriter": "statlib.review.claims",
    "Decision": "statlib.review.screening",
    "Fault": "statlib.kernel.refusals",
    "Host": "statlib.statistics.hosts",
    "Refusal": "statlib.kernel.refusals",
    "ReleaseCause": "statlib.review.reservation_writer",
    "ReservationWriter": "statlib.review.reservation_writer",
    "Role": "statlib.statistics.hosts",
    "Saved": "statlib.statistics.outcomes",
    "ScreeningWriter": "statlib.review.screening_writer",
    "SessionAct": "statlib.review.annotation_writer",
    "SimulatedReview": "statlib.review.loading.simulated",
    "boundary": "statlib.application",
    "counting": "statlib.mongo.command_counter",
    "host": "statlib.application",
    "load": "statlib.application",
    "read_bundle": "statlib.application",
    "up": "statlib.application",
}


def __getattr__(name: str) -> Any:
    if (module := _DEFINED_IN.get(name)) is None:
        raise AttributeError(f"module 'statlib' has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
