"""The typed configuration: models of ``ci.yaml``, strict loader, generated JSON schema."""

from ci.config.load import load_config, load_site
from ci.config.models import (
    MOST_RERUNS,
    Config,
    DevicePolicy,
    NetworkConfig,
    PlatformConfig,
    SelectionConfig,
    SiteConfig,
    StageConfig,
)
from ci.config.schema import schema_text

__all__ = [
    "MOST_RERUNS",
    "Config",
    "DevicePolicy",
    "NetworkConfig",
    "PlatformConfig",
    "SelectionConfig",
    "SiteConfig",
    "StageConfig",
    "load_config",
    "load_site",
    "schema_text",
]
