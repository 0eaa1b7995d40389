"""The stage agent: runs a job's stages, measures them, and writes events.

It is copied into containers whose Python may be old: standard library only, Python >= 3.8,
and nothing imported from the rest of ``ci``.
"""
