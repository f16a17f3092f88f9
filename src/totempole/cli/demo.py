from totempole.cli import options
def add(verbs: options.Verbs) -> None:
    options.verb(verbs, "demo", "the whole story in the terminal, in two minutes")
