"""``python -m asyncsparse_lab`` is ``asyncsparse``."""

from asyncsparse_lab.cli import main

if __name__ == "__main__":
    main()
