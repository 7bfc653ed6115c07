"""Measurements, one file a question. Each prints JSON rows and checks the result that it timed.

The queries of `nexmark`, a package, throw their results away; the tests compare them with Spark's.
"""
