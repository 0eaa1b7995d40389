# Where the SDK is in images of this platform.
sdk_root MUSA_HOME /usr/local/musa
sdk_root MUSA_ROOT "${MUSA_HOME:-}"
sdk_root MUSA_PATH "${MUSA_HOME:-}"
