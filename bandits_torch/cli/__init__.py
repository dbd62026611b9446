"""The command line ``bandits-torch``. Its functions are not a public interface."""

__all__: list[str] = []


def main() -> None:
    """The command. It imports the rest when it is called, so that each module here can be run by itself."""
    from bandits_torch.cli.commands import main as command

    command()
