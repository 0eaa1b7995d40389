"""From the configuration and the request to one frozen plan per platform."""
