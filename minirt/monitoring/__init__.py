"""What a running job reports about itself.

figures     rates and sums of what subtasks have counted; pure
monitor     the newest figures of a job, gathered from what its coordinator hears
catalogue   every metric: name, meaning and where it comes from
prometheus  an HTTP endpoint that Prometheus reads
report      the figures as log messages
events      what happened to a job and what its figures were, for its history on storage
logs        log messages with job, operator, subtask, checkpoint and generation as fields
"""
