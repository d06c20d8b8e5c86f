"""Python's own state: what a program reaches beside its arguments, what it changes there, and what a call has to find.

A graph has values and no objects. So the objects that a program can get at are found before it is captured
(``heap``), what it did to them is read off afterwards and undone (``changes``), and a call looks whether they still are
what the program saw (``checks``) and does the same to them again (``effects``).
"""
