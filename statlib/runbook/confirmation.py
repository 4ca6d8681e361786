"""Confirmation: an operator who acts repeats the name of what is acted upon."""

from __future__ import annotations

from statlib.kernel.refusals import Fault, Refusal
from statlib.kernel.settings import Settings
from statlib.runbook.catalogue import Runbook
from statlib.runbook.parameters import ActingParameters, RunbookParameters
from statlib.runbook.reasons import RunbookReason


def name_to_confirm(runbook: Runbook, parameters: RunbookParameters, settings: Settings) -> str:
    """The deployment's name, or the value of the parameter that the runbook names in ``confirms``."""
    if runbook.confirms is None:
        return settings.deployment
    if runbook.confirms not in type(parameters).model_fields:
        raise Fault(
            f"{runbook.name} confirms {runbook.confirms}, which is none of its parameters",
            remedy="Correct Runbook.confirms.",
        )
    return str(getattr(parameters, runbook.confirms))


def require_confirmation(runbook: Runbook, parameters: RunbookParameters, settings: Settings) -> None:
    """Refuses ConfirmationMissing if ``apply`` is given and ``confirm`` is not exactly that name."""
    if not isinstance(parameters, ActingParameters) or not parameters.apply:
        return
    expected = name_to_confirm(runbook, parameters, settings)
    if parameters.confirm != expected:
        given = f"not {parameters.confirm!r}" if parameters.confirm else "which was not given"
        raise Refusal(RunbookReason.ConfirmationMissing, f"to act here, confirm must be {expected!r}, {given}")
