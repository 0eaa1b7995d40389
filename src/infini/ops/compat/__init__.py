"""The operators under the names and signatures of other projects."""
