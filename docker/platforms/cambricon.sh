sdk_root NEUWARE_HOME /usr/local/neuware
