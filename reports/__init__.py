"""Support reports: what each backend passes, fails and does not take, as HTML, Markdown and JSON.

Reads results only: the store's data frames and the words of a verdict.
"""
