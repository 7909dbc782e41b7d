"""`python -m pliant`, the same as the command `pliant`."""

import sys

from pliant.cli import main

sys.exit(main())
