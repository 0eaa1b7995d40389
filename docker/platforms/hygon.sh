# Where the SDK is in images of this platform.
vendor_script /opt/dtk/env.sh
sdk_root ROCM_PATH /opt/dtk
