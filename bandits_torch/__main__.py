"""``python -m bandits_torch`` is ``bandits-torch``."""

from bandits_torch.cli import main

if __name__ == "__main__":
    main()
