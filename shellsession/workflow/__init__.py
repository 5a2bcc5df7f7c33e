"""Workflows: many steps in one shell, from a file or from Python, resumed where they stopped."""
