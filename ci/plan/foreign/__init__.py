"""What a stranger's project declares about its tests, and the ``ci.yaml`` that follows from it.

Its files are read and never executed: ``files`` reads them within bounds, ``runners`` and
``declared`` find what they state, and ``proposal`` decides.
"""
