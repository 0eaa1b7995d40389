# Where the SDK is in images of this platform.
sdk_root MACA_PATH /opt/maca
