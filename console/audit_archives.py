"""Archives as pages and the API fetch them."""

from __future__ import annotations

from django.http import HttpRequest
from django.http.response import HttpResponseBase

from console.downloads import asked_part, send_file
from tenants.actors import Actor
from tenants.errors import NotFound
from tenants.models import AuditArchive
from tenants.trail.archives import files
from tenants.trail.archives.actions import record_download


def send_archive(request: HttpRequest, *, by: Actor, archive: AuditArchive) -> HttpResponseBase:
    """The file or a range of it; that it was carried away is an event. Raises `NotFound` where there is none."""
    path = files.path_of(archive.pk)
    if not path.is_file():
        raise NotFound("file")
    part = asked_part(request, path.stat().st_size, archive.sha256)
    if part is not None:
        record_download(by=by, archive=archive, is_later_part=part[0] > 0)
    return send_file(request, path, name=path.name, media_type="application/gzip", digest=archive.sha256)
