"""The stage agent: runs a job's stages, measures them, and writes events.

It is copied into containers whose Python may be old: standard library only, Python >= 3.8. The
same holds for ``ci.protocol`` and ``ci.util``, the only other parts of ``ci`` that it imports.
"""
