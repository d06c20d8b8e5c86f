"""Capture by running the program once under a dispatch mode, and the recorder that all captures share."""
