"""NexMark: a stream of auctions that people open and bid on.

The schema is that of NEXMark (Tucker, Tufte, Papadimos, Maier: "NEXMark - A Benchmark for Queries over Data
Streams"), the generator that of its successors in Apache Beam and nexmark/nexmark. One thing differs: every
event is a pure function of the seed and its number, so a source can go back to any place and find the same
events again.

    workload   what the events are like
    random     random numbers by event and field
    text       random strings
    vocabulary the words that names are made of
    schemas    the columns
    generator  persons, auctions and bids as record batches
"""
