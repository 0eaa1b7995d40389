"""Generators of the operator library: torchgen's model in, C++ and metadata out.

Three layers, as in torchgen itself: ``model`` is data, ``cpp`` translates it, ``emit``
writes it. ``aten`` and ``selection`` read what the layers start from.
"""
