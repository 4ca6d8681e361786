"""Evidence: what a run leaves behind so that its verdict can be derived again by somebody who trusts nobody.

    journal     what happened, in order, each line carrying the hash of the one before
    captures    the raw numbers, as files whose hashes the journal holds
    gates       thresholds against captures: pure, so that anybody derives the same
    bundle      the report folder and the manifest over every file in it
    verify      the reader that needs the folder and nothing else

Invariant: a gate is a function of captures alone. No verdict is taken from a notebook's word.
"""
