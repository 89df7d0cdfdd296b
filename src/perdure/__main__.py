"""``python -m perdure``."""

from perdure.cli.main import main

if __name__ == "__main__":
    main()
