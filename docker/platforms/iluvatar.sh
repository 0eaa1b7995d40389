# Where the SDK is in images of this platform.
sdk_root COREX_HOME /usr/local/corex
