"""The laboratory: one job under several settings, measured on one clock, and compared.

matrix       which settings are compared, and in which order their runs take turns; pure
measured     what was measured, as frozen values, to and from JSON
statistics   medians, spread, and whether a difference is more than noise; pure
trial        a job made ready for one run: its sinks measured and kept apart, its options laid over it
notes        what sinks and sources of a run write down for it, in files
sinks        sinks that count, and time, what they are given
sampler      the figures of a job and of its processes, several times a second
processes    what a process and all below it use
kills        SIGKILL to workers, drawn from a seed
recovery     what each kill cost, from the notes; pure
one_run      a program that runs a job once, and stores what was measured
bench        runs one program after another, and survives what happens to them
expected     has Spark judge the output of a job whose result is known
findings     what the figures say, in sentences
wording, explained   figures as people read them, and what each of them is
figures, courses   the plots; courses are those over time
drawing, canvas, palette   what plots share: axes and names, SVG, one colour for each mode
report, extra   the page, and what it needs beyond the core
export       the same as CSV
peer, peers  other systems that a comparison runs beside minirt, one file each
workload, workloads   what a workload is, and those that come with minirt, one file each
nexmark      the events of NexMark: persons, auctions, bids

Its clock is the monotonic one of the machine, which on Linux all processes share.
"""
