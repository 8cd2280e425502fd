"""`python -m privfed`: the `privfed` command, in the form in which torchrun starts it."""

from privfed.cli import main

if __name__ == "__main__":
    main()
