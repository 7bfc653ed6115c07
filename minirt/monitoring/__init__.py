"""What a running job tells of itself.

figures     rates and sums of what subtasks have counted; pure
monitor     the newest figures of a job, gathered from what its coordinator hears
catalogue   every metric: name, meaning and where it comes from
prometheus  an HTTP endpoint that Prometheus reads
logs        log messages with job, operator, subtask, checkpoint and generation as fields
"""
