"""NexMark: queries over its stream of auctions, and how to measure them.

`minirt.laboratory.nexmark` makes the events.

    source      the generator as a source of a job
    files       the same events in files, for minirt and for Flink
    events      what queries see of the stream: persons, auctions, bids
    queries     one function a query
    flink_sql   the same queries in Flink SQL
    running     one run of a query on a system, and what is made of several
"""
