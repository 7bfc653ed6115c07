"""Kernels: the loops over the numbers of a batch in which column keys spend most of their time.

contract   what each kernel does, bit by bit
on_numpy   with numpy, which minirt needs anyway
compiled   compiled by numba, with the extra `minirt[fast]`
choice     which of them a process uses

Callers ask `kernels()` at each batch. numba is imported when a job chooses its kernels, not before.
"""
