"""`minirt ui`: the live page of a job, in a process of its own.

reading   what is known of a job at one moment, whether it runs or is over
live      reads a running job over its private socket
stored    reads what storage remembers of a job
figures   pure: operators, links and subtasks as the page shows them, bounded in size
timeline  pure: one checkpoint by subtask, the last ones to store their part on top
verdict   pure: what holds the job up, in words
snapshot  pure: all of that for one moment
watch     reads once a second while anybody looks, for all who look
guard     who may ask: token, cookie, Host, Origin
server    the routes
page/     what the browser gets: modules, styles, and `vendor/`, unchanged files of npm packages

Dependencies beyond the core are those of the extra `minirt[ui]`; only `server` and `guard` import them.
"""
