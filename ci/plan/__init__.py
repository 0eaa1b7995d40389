"""Planning: configuration and request become one frozen plan per platform."""
