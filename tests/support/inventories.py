"""Reports of S3 Inventory, made of what is in a bucket."""

from __future__ import annotations

import gzip
import json
import uuid
from typing import Any
from urllib.parse import quote_plus


def put_inventory(s3: Any, source: str, destination: str, *, files: int = 2) -> str:
    """Write a report in CSV of all objects that a bucket has now. Returns the address of its manifest."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=source)
    objects = [(found["Key"], found["Size"]) for page in pages for found in page.get("Contents", [])]
    folder = f"inventory/{source}/{uuid.uuid4().hex[:8]}"
    size = -(-len(objects) // files)
    keys = []
    for number in range(files):
        lines = [
            f'"{source}","{quote_plus(key, safe="/")}","{length}"'
            for key, length in objects[number * size : (number + 1) * size]
        ]
        keys.append(f"{folder}/data/{number}.csv.gz")
        s3.put_object(Bucket=destination, Key=keys[-1], Body=gzip.compress(("\n".join(lines) + "\n").encode()))
    manifest = {
        "sourceBucket": source,
        "destinationBucket": f"arn:aws:s3:::{destination}",
        "version": "2016-11-30",
        "creationTimestamp": "1714979289000",
        "fileFormat": "CSV",
        "fileSchema": "Bucket, Key, Size",
        "files": [{"key": key, "size": 1, "MD5checksum": "0" * 32} for key in keys],
    }
    s3.put_object(Bucket=destination, Key=f"{folder}/manifest.json", Body=json.dumps(manifest).encode())
    return f"s3://{destination}/{folder}/manifest.json"
