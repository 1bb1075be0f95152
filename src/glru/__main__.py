"""``python -m glru``: the command line."""

from glru.cli import main

if __name__ == "__main__":
    main()
