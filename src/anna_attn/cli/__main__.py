"""`python -m anna_attn.cli` is `anna`."""

from .app import main

main()
