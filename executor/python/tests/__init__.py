"""Tests of the Python package: python3 -m unittest discover -s tests -t . in executor/python."""
