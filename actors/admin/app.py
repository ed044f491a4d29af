"""What can be asked of the admin process. Answers that read files are made in threads, so they are plain functions."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response

from actors.metrics.scrape import CONTENT_TYPE, Scrape
from actors.topology import Topology

METRICS_PATH = "/metrics"


def make_app(topology: Topology) -> FastAPI:
    app = FastAPI(title="Holdfast", openapi_url=None)
    scrape = Scrape(topology)

    @app.get(METRICS_PATH)
    def metrics() -> Response:
        """All figures of all processes, for Prometheus."""
        try:
            return Response(scrape.text(), media_type=CONTENT_TYPE)
        except OSError as error:
            return PlainTextResponse(f"the figures cannot be read: {error.strerror}\n", status_code=503)

    return app
