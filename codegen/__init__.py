"""Generators of the operator library: torchgen's model in, C++ sources, a stub and metadata out.

The layers are those of torchgen itself. ``aten``, ``native`` and ``selection`` read the inputs.
``model`` holds the data. ``translate`` turns ATen's declarations into the library's operators.
``cpp`` and ``stubs`` format single C++ and Python expressions, ``emit`` renders the files, and
``output`` writes them. ``generation`` and ``inspection`` combine these layers into commands.
"""
