"""One figure a module: the data that it takes, the question that it answers, and how it is drawn."""
