"""HTTP/2 for servers (RFC 9113, RFC 7541) on asyncio protocols; it knows nothing of gRPC.

`Http2Server` listens, `Http2Connection` reads and dispatches frames, `Outbox` writes within the
windows, `HeaderReader` decodes header blocks, `Guard` counts what only an attacker sends much of.
What is asked for is an `Application` (`serving.frontends.http2.application`). Loop thread only.
"""

from __future__ import annotations
