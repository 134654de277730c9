"""Everything that writes deployments; views, the REST API and apps above call these functions."""

from helixweb.deployment.services.arriving import admit, take_identity
from helixweb.deployment.services.deploying import (
    DeployRefused,
    deploy,
    follow_addresses,
    goes_on,
    options_kept,
    stop,
)
from helixweb.deployment.services.desired import (
    coordinator_desired,
    current_generation,
    desired_state,
    service_key,
)
from helixweb.deployment.services.draining import drain, follow_drains, take_in
from helixweb.deployment.services.observing import record_heartbeat, record_report
from helixweb.deployment.services.obstacles import find_obstacles
from helixweb.deployment.services.outages import Outage, outage_of
from helixweb.deployment.services.pausing import pause, resume
from helixweb.deployment.services.pinning import may_mix_versions
from helixweb.deployment.services.repairing import accept, dismiss, repair, shown_repair
from helixweb.deployment.services.rolling_back import deployment_before, roll_back
from helixweb.deployment.services.weight_peers import weight_peers
from helixweb.deployment.weighing import follow_links, hold_weights

__all__ = [
    "DeployRefused",
    "Outage",
    "accept",
    "admit",
    "coordinator_desired",
    "current_generation",
    "deploy",
    "deployment_before",
    "desired_state",
    "dismiss",
    "drain",
    "find_obstacles",
    "follow_addresses",
    "follow_drains",
    "follow_links",
    "goes_on",
    "hold_weights",
    "may_mix_versions",
    "options_kept",
    "outage_of",
    "pause",
    "record_heartbeat",
    "record_report",
    "repair",
    "resume",
    "roll_back",
    "service_key",
    "shown_repair",
    "stop",
    "take_identity",
    "take_in",
    "weight_peers",
]
