"""Docker's bridge, as the containers on it see it."""

from __future__ import annotations

from ipaddress import ip_network

from docker.client import DockerClient


def machine_address(client: DockerClient) -> str:
    """Return the address of the engine's machine on the bridge.

    An engine lists the gateway only of a bridge that it found, not of one that it made when it
    started. It gives such a bridge the first address.
    """
    [settings] = client.networks.get("bridge").attrs["IPAM"]["Config"]
    return str(settings.get("Gateway") or ip_network(settings["Subnet"])[1])
