# Where the SDK is in images of this platform. The base image is set in ci/model/platforms.py.
sdk_root MUSA_HOME /usr/local/musa
sdk_root MUSA_ROOT "${MUSA_HOME:-}"
sdk_root MUSA_PATH "${MUSA_HOME:-}"
