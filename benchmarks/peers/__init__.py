"""Other systems at the work of the benchmarks, a process each.

`benchmarks.workload` says what they take and print. They run in environments of their own, so none imports
minirt.
"""
