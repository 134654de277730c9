"""Checkpoints of the site's models folder, served to nodes as the hub serves them.

A node that lacks a model fetches the tensors of its layers from here before it asks the hub.
"""

import re
from pathlib import Path

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.request import Request

from helixweb.deployment.models import LIVE, STANDING, Deployment, Profiling
from helixweb.deployment.process_api import ProcessView, for_processes
from helixweb.inventory.hub import WHOLE_FILES, commit_of, find_folder, is_served
from helixweb.inventory.models import Coordinator, Node
from runtime.checkpoints.hub_names import SITE, parse_hub_name

_RANGE = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")
_MOST_BYTES = 4 << 20  # of one answer: clients ask for the rest


class SiteWeightsView(ProcessView):
    """A file of a checkpoint below HELIX_MODELS_DIR, or a range of it; of tensors ranges only.

    Served to the processes of clusters that deploy the model, or measure a node for it.
    """

    @for_processes(responses={(200, "application/octet-stream"): OpenApiTypes.BINARY})
    def get(self, request: Request, model: str, revision: str, file: str) -> HttpResponse:
        folder = find_folder(model)
        if folder is None or not _is_ordered(self.process, folder):
            raise NotFound(f"This site has no model {model[:120]!r} in its models folder.")
        commit = commit_of(folder)
        path = folder / file
        if revision not in (SITE, commit) or not is_served(path):
            raise NotFound(f"This site has no {file} of revision {revision} of {model}.")
        asked = _RANGE.fullmatch(request.headers.get("Range", ""))
        size = path.stat().st_size
        if asked is None:
            if file not in WHOLE_FILES:
                raise ParseError(f"{file} is served by range; send Range: bytes=first-last.")
            answer = HttpResponse(path.read_bytes(), content_type="application/octet-stream")
        else:
            first, last = int(asked[1]), min(int(asked[2]), size - 1)
            last = min(last, first + _MOST_BYTES - 1)
            if first > last:
                return HttpResponse(status=416, headers={"Content-Range": f"bytes */{size}"})
            with path.open("rb") as opened:
                opened.seek(first)
                part = opened.read(last + 1 - first)
            answer = HttpResponse(part, status=206, content_type="application/octet-stream")
            answer["Content-Range"] = f"bytes {first}-{last}/{size}"
        answer["X-Repo-Commit"] = commit
        answer["ETag"] = f'"{commit}-{file}"'
        return answer


def _is_ordered(process: Node | Coordinator, folder: Path) -> bool:
    """True if a deployment or a measurement of the cluster of `process` needs this model."""
    deployed = Deployment.unscoped.filter(cluster=process.cluster_id, status__in=LIVE)
    measured = Profiling.unscoped.filter(node__cluster=process.cluster_id, state__in=STANDING)
    for checkpoint in {
        *deployed.values_list("checkpoint", flat=True),
        *measured.values_list("model__checkpoint", flat=True),
    }:
        name = parse_hub_name(checkpoint)
        if find_folder(checkpoint if name is None else name.repository) == folder:
            return True
    return False
