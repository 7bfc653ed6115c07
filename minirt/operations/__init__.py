"""Running jobs as others see them: found by name on their host, or by URL from another one.

registry   which jobs run on this machine: one file a job in a folder that is its user's alone
exchange   one request and one answer, as lines of JSON over a socket
control    the private socket, for callers that send the job's access token along
access     the URL of a job and its token, for other hosts
port       the control port, for callers there that prove the token
running    a running job wherever it is: the one way to ask it
desk       what a caller can ask a job
details    what the live page asks beside figures
standby    watches the lease of a job, and runs its program once nobody else does
"""
