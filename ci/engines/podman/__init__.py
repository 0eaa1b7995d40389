"""The Podman engine: containers of a user's own Podman, by its Docker-compatible API."""
