"""What a build was made of, read from what a run leaves in its results folder.

Whatever lies there is taken as it is: absent, cut off or somebody else's, it is no error.
"""

from ci.measures.build import Build, read_build

__all__ = ["Build", "read_build"]
