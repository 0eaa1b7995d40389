sdk_root MACA_PATH /opt/maca
