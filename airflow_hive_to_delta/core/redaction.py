"""Credentials are taken out of texts that come from elsewhere, before a report, a log or an XCom has them.

This goes by the forms that credentials have: user and password in a URI, signed URIs, settings, headers, keys.
"""

from __future__ import annotations

import re


def redact_credentials(text: str) -> str:
    """Return a text, such as an error message or a URI, with ``***`` in place of each credential that it may carry."""
    for pattern, replacement in _CREDENTIALS:
        text = pattern.sub(replacement, text)
    return text


# Every repetition that may be tried in vain is bounded: a long text costs no more than its length.
_CREDENTIALS = [
    (re.compile(pattern, re.IGNORECASE), replacement)
    for pattern, replacement in (
        # User and password in a URI. An S3 secret key may hold a slash.
        (r"\b(s3[an]?)://[^/\s@]{0,200}:[^\s@]{0,200}@", r"\1://***@"),
        (r"://[^/\s@]{0,200}:[^/\s@]{0,2000}@", "://***@"),
        # Signed URIs of S3, Azure and Google.
        (r"([?&](?:sig|signature|[\w-]{0,40}(?:-signature|-credential|-token|accesskeyid))=)[^&\s\"'<>]+", r"\1***"),
        # Settings. After a colon only quoted, as in JSON: "ExpiredToken: The token …" is a message.
        (
            r"((?:password|passwd|secret|token|access[._-]?key|account[._-]?key|api[._-]?key)[\w.-]{0,80}"
            r"(?:[\"']?\s*=\s*[\"']?|[\"']\s*:\s*[\"']))[^\s\"',;&}]+",
            r"\1***",
        ),
        (r"((?:password|passwd):\s*[\"']?)[^\s\"',;&}]+", r"\1***"),
        # Names that no message has before a colon, as in YAML.
        (
            r"((?:secret[._-]access[._-]key|secret[._-]key|session[._-]token|client[._-]secret):\s*[\"']?)"
            r"[^\s\"',;&}]+",
            r"\1***",
        ),
        (r"\b(bearer|basic)\s+[\w.~+/=-]{12,}", r"\1 ***"),
        (r"\b(?:(?:AKIA|ASIA)[A-Z0-9]{16}|dapi[0-9a-f]{32}(?:-\d)?)\b", "***"),
    )
]
