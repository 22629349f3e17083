#!/usr/bin/env python
"""Tidegate's command line: `manage.py up` starts everything, `manage.py help` lists the rest."""

import os
import sys

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    from django.core.management import execute_from_command_line

    from console.processes.beside import join

    if sys.argv[1:2] not in (["up"], ["demo"]) and os.environ["DJANGO_SETTINGS_MODULE"] == "console.settings":
        join()

    execute_from_command_line(sys.argv)
