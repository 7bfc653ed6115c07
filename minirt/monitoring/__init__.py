"""What a running job reports about itself.

subtask_metrics   what a subtask counts while it runs
buckets     counts by bucket: added up, and up to which one a share of them lies; pure
latency     how long latency markers took: histograms; pure
queued      how much data waits in a job; pure
figures     rates and sums of what subtasks have counted; pure
monitor     the newest figures of a job, gathered from what its coordinator hears
catalogue   every metric: name, meaning and where it comes from
prometheus  an HTTP endpoint that Prometheus reads
report      the figures as log messages
status_line   what a job is doing, in one line
events      what happened to a job and what its figures were, for its history on storage
load        how busy and how backpressured each operator was over time, for its storage
description   what stays the same while a job runs: its graph and its options
causes      why something ended, in a text of bounded size
logs        log messages with job, operator, subtask, checkpoint and generation as fields
host_logs   log messages of workers, for the logging of the program
program_logging   how the program has set up logging, for its workers to log in the same way
log_lines   the newest log messages of a job's workers, bounded
"""
