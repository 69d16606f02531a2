"""The command `anna`."""

from .app import OneLineErrors, app, main

__all__ = ["OneLineErrors", "app", "main"]
