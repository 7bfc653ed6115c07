"""Running jobs as other processes of their user see them: found by name, asked over a private socket.

registry   which jobs run on this machine: one file a job in a folder that is its user's alone
control    one request and one answer over a socket, for callers that know the job's access token
desk       what a caller can ask a job
details    what the live page asks beside figures
standby    watches the lease of a job, and runs its program once nobody else does
"""
