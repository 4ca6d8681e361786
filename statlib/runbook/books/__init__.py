"""The runbooks that ship with statlib: one module each, its parameters and the functions that its steps call."""
