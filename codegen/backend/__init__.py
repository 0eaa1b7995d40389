"""Stubs of an out-of-tree device backend, from the YAML file that torchgen's generator reads."""
