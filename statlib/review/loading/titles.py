"""Titles for simulated records: composed from word lists, so that lists and searches look like a real review's."""

from __future__ import annotations

import random

SEARCHES = ("MEDLINE", "Embase", "CINAHL", "Scopus", "Hand search")

_PATTERNS = (
    "{intervention} for {condition} in {population}: {design}",
    "Effect of {intervention} on {outcome} in {population} with {condition}: {design}",
    "{outcome} after {intervention}: {design} in {population}",
    "Is {intervention} associated with {outcome} in {condition}? Results of {design}",
    "{condition} and {outcome} in {population}: {design}",
    "Predictors of {outcome} in {condition}: {design}",
)
_INTERVENTIONS = (
    "early mobilisation", "vitamin D supplementation", "intratympanic dexamethasone", "β-blocker withdrawal",
    "telephone follow-up", "low-dose ketamine", "hyperbaric oxygen", "group exercise", "automated text reminders",
    "high-flow nasal oxygen", "cognitive behavioural therapy", "probiotic administration", "remote monitoring",
)  # fmt: skip
_CONDITIONS = (
    "sudden sensorineural hearing loss", "Ménière’s disease", "chronic low back pain", "type 2 diabetes",
    "acute ischaemic stroke", "postoperative delirium", "community-acquired pneumonia", "Sjögren’s syndrome",
    "heart failure", "neuropathic pain", "osteoarthritis of the knee", "Guillain–Barré syndrome",
)  # fmt: skip
_POPULATIONS = (
    "older adults", "school-aged children", "adult rats", "pregnant women", "nursing home residents",
    "critically ill patients", "C57BL/6 mice", "primary care patients", "preterm infants", "veterans",
)  # fmt: skip
_OUTCOMES = (
    "quality of life", "all-cause mortality", "hospital readmission", "functional recovery", "hearing thresholds",
    "length of stay", "pain at 12 weeks", "infarct volume", "adherence", "HbA1c",
)  # fmt: skip
_DESIGNS = (
    "a randomised controlled trial", "a retrospective cohort study", "a systematic review and meta-analysis",
    "a pilot study", "a cross-sectional survey", "a case–control study", "a study protocol", "a secondary analysis",
    "a multicentre registry study", "a qualitative interview study",
)  # fmt: skip


def title(chance: random.Random) -> str:
    """One title; takes a fixed number of draws from ``chance``."""
    composed = chance.choice(_PATTERNS).format(
        intervention=chance.choice(_INTERVENTIONS),
        condition=chance.choice(_CONDITIONS),
        population=chance.choice(_POPULATIONS),
        outcome=chance.choice(_OUTCOMES),
        design=chance.choice(_DESIGNS),
    )
    return composed[0].upper() + composed[1:]
