"""How results look: tokens, shapes, number forms, the stylesheet, and the figures.

Invariant: what a reader sees comes from one set of tokens, so that a report, a notebook cell and a figure
agree in light, in dark and on paper.
"""
