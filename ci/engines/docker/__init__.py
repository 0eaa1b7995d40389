"""The Docker engine: a labelled container of a Docker Engine for each platform."""
