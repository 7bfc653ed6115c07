"""Serve S3 on port 9000 (PORT) with the bucket BUCKET, until SIGTERM or Ctrl-C."""

from __future__ import annotations

import os
import signal

import boto3
from moto.moto_server.threaded_moto_server import ThreadedMotoServer

PORT = int(os.environ.get("PORT", "9000"))
ENDS = {signal.SIGTERM, signal.SIGINT}

# Blocked before there are threads, so that sigwait gets them.
signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
server = ThreadedMotoServer(os.environ.get("HOST", "0.0.0.0"), PORT, verbose=False)
server.start()
boto3.client(
    "s3",
    endpoint_url=f"http://127.0.0.1:{PORT}",
    region_name="us-east-1",
    aws_access_key_id="any",
    aws_secret_access_key="any",
).create_bucket(Bucket=os.environ.get("BUCKET", "minirt"))
print(f"serves the bucket on port {PORT}", flush=True)
signal.sigwait(ENDS)
server.stop()
