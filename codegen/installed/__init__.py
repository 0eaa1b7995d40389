"""The generators of the operator library, as the distribution ``infini-codegen`` has them.

``tree`` has the files of the repository that they read, in the same places.
"""
