# Where the SDK is in images of this platform.
sdk_root NEUWARE_HOME /usr/local/neuware
