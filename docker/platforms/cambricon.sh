# Where the SDK is in images of this platform. The base image is set in ci/model/platforms.py.
sdk_root NEUWARE_HOME /usr/local/neuware
