"""`python -m helixweb.command_line`: the same as `helixweb`."""

import sys

from helixweb.command_line.main import main

sys.exit(main())
