"""Texts that carry credentials, each called canary, and texts that only look as if they did."""

from __future__ import annotations

WITH_CREDENTIALS = (
    "password: 'canary' was refused",
    "aws_session_token: canary",
    "secret_access_key: 'canary'",
    "s3://AKIAIOSFODNN7EXAMPLE:canary/with/slash@bucket/t",
    "reading (s3a://key:canary@bucket/t) failed",
    "jdbc:postgresql://user:canary@host/db",
    "https://b.s3.amazonaws.com/k?X-Amz-Credential=canary&X-Amz-Signature=canary",
    "wasbs://c@a.blob.core.windows.net/t?sv=1&sig=canary",
    "spark.hadoop.fs.s3a.secret.key=canary",
    "fs.azure.account.key.acme.dfs.core.windows.net = canary",
    "{'aws_secret_access_key': 'canary', \"token\": \"canary\"}",
    "Authorization: Bearer canary.canary.canary",
    "password: canary",
)
WITHOUT_CREDENTIALS = (
    "s3://bucket/d/t/dt=2020-01-01 00:00:00/a@b",
    "abfss://container@account.dfs.core.windows.net/t",
    "Listing s3://b/t: ExpiredToken: The provided token has expired",
    "InvalidAccessKeyId: The AWS Access Key Id you provided does not exist",
)
