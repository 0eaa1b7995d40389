"""The subcommands of ``python -m ci``, one file each."""
