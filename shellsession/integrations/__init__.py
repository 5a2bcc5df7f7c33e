"""Adapters for agent SDKs: one thin module per SDK, which it alone imports; each SDK is an optional extra."""
