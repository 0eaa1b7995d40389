sdk_root COREX_HOME /usr/local/corex
