"""`python -m tidegate`: the command line."""

from tidegate.cli.main import main

main()
