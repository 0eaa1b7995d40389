"""Generators of the operator library: torchgen's model in, C++, a stub and metadata out.

Layers, as in torchgen itself: ``aten``, ``native`` and ``selection`` read, ``model`` is what they
read and what becomes of it, ``translate`` turns the one into the other, ``cpp`` and ``stubs`` spell
it, ``emit`` renders it, ``output`` writes it. ``generation`` and ``inspection`` put them together.
"""
