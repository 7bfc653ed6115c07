"""NexMark: a stream of auctions that people open and bid on, and queries over it.

The schema and queries 1 to 8 are those of NEXMark (Tucker, Tufte, Papadimos, Maier: "NEXMark - A
Benchmark for Queries over Data Streams"), the generator and the other queries those of its successors
in Apache Beam and nexmark/nexmark. One thing differs: every event is a pure function of the seed and
its number, so a source can go back to any place and find the same events again.

    workload   what the events are like
    random     random numbers by event and field
    text       random strings
    vocabulary the words that names are made of
    schemas    the columns
    generator  persons, auctions and bids as record batches
    source     the generator as a source of a job
    queries    one function a query
"""
