"""The commands: thin, each loaded when it is called."""
