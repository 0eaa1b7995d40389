"""The stage agent: runs a job's stages, measures them, and writes events.

It is copied into containers whose Python may be old: standard library only, Python >= 3.8. So is
what it shares with the rest, ``ci.model.events``, ``ci.model.job`` and ``ci.util``, and it imports
nothing else of ``ci``.
"""
