"""NexMark: queries over its stream of auctions, and a source that gives out a number of its events.

`minirt.laboratory.nexmark` makes the events.

    source     the generator as a source of a job
    queries    one function a query
"""
