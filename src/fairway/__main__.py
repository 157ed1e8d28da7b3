"""`python -m fairway` is the command line."""

import sys

from fairway.cli import main

sys.exit(main())
