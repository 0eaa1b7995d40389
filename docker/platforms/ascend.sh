# Where the SDK is in images of this platform.
vendor_script /usr/local/Ascend/ascend-toolkit/set_env.sh
vendor_script /usr/local/Ascend/nnal/atb/set_env.sh
sdk_root ASCEND_HOME_PATH /usr/local/Ascend/ascend-toolkit/latest
