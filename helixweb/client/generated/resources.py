"""All resources of the REST API. Generated from the OpenAPI document; see helixweb.client.generator."""

from __future__ import annotations

from helixweb.client.connection import Connection
from helixweb.client.generated.alert_channels import AlertChannels
from helixweb.client.generated.alert_deliveries import AlertDeliveries
from helixweb.client.generated.alert_rules import AlertRules
from helixweb.client.generated.alert_silences import AlertSilences
from helixweb.client.generated.alerts import Alerts
from helixweb.client.generated.api_keys import ApiKeys
from helixweb.client.generated.changes import Changes
from helixweb.client.generated.clusters import Clusters
from helixweb.client.generated.coordinators import Coordinators
from helixweb.client.generated.deployments import Deployments
from helixweb.client.generated.drains import Drains
from helixweb.client.generated.events import Events
from helixweb.client.generated.export import Export
from helixweb.client.generated.grants import Grants
from helixweb.client.generated.groups import Groups
from helixweb.client.generated.import_ import Import
from helixweb.client.generated.join_tokens import JoinTokens
from helixweb.client.generated.links import Links
from helixweb.client.generated.me import Me
from helixweb.client.generated.metrics import Metrics
from helixweb.client.generated.model_mixes import ModelMixes
from helixweb.client.generated.models import Models
from helixweb.client.generated.nodes import Nodes
from helixweb.client.generated.plan_runs import PlanRuns
from helixweb.client.generated.plans import Plans
from helixweb.client.generated.profile_versions import ProfileVersions
from helixweb.client.generated.profiles import Profiles
from helixweb.client.generated.profilings import Profilings
from helixweb.client.generated.region_links import RegionLinks
from helixweb.client.generated.repairs import Repairs
from helixweb.client.generated.requests import Requests
from helixweb.client.generated.sessions import Sessions
from helixweb.client.generated.shared_bandwidths import SharedBandwidths
from helixweb.client.generated.simulations import Simulations
from helixweb.client.generated.users import Users


class Resources(Connection):
    """A connection with one attribute per resource."""

    @property
    def alert_channels(self) -> AlertChannels:
        return AlertChannels(self)

    @property
    def alert_deliveries(self) -> AlertDeliveries:
        return AlertDeliveries(self)

    @property
    def alert_rules(self) -> AlertRules:
        return AlertRules(self)

    @property
    def alert_silences(self) -> AlertSilences:
        return AlertSilences(self)

    @property
    def alerts(self) -> Alerts:
        return Alerts(self)

    @property
    def api_keys(self) -> ApiKeys:
        return ApiKeys(self)

    @property
    def changes(self) -> Changes:
        return Changes(self)

    @property
    def clusters(self) -> Clusters:
        return Clusters(self)

    @property
    def coordinators(self) -> Coordinators:
        return Coordinators(self)

    @property
    def deployments(self) -> Deployments:
        return Deployments(self)

    @property
    def drains(self) -> Drains:
        return Drains(self)

    @property
    def events(self) -> Events:
        return Events(self)

    @property
    def export(self) -> Export:
        return Export(self)

    @property
    def grants(self) -> Grants:
        return Grants(self)

    @property
    def groups(self) -> Groups:
        return Groups(self)

    @property
    def import_(self) -> Import:
        return Import(self)

    @property
    def join_tokens(self) -> JoinTokens:
        return JoinTokens(self)

    @property
    def links(self) -> Links:
        return Links(self)

    @property
    def me(self) -> Me:
        return Me(self)

    @property
    def metrics(self) -> Metrics:
        return Metrics(self)

    @property
    def model_mixes(self) -> ModelMixes:
        return ModelMixes(self)

    @property
    def models(self) -> Models:
        return Models(self)

    @property
    def nodes(self) -> Nodes:
        return Nodes(self)

    @property
    def plan_runs(self) -> PlanRuns:
        return PlanRuns(self)

    @property
    def plans(self) -> Plans:
        return Plans(self)

    @property
    def profile_versions(self) -> ProfileVersions:
        return ProfileVersions(self)

    @property
    def profiles(self) -> Profiles:
        return Profiles(self)

    @property
    def profilings(self) -> Profilings:
        return Profilings(self)

    @property
    def region_links(self) -> RegionLinks:
        return RegionLinks(self)

    @property
    def repairs(self) -> Repairs:
        return Repairs(self)

    @property
    def requests(self) -> Requests:
        return Requests(self)

    @property
    def sessions(self) -> Sessions:
        return Sessions(self)

    @property
    def shared_bandwidths(self) -> SharedBandwidths:
        return SharedBandwidths(self)

    @property
    def simulations(self) -> Simulations:
        return Simulations(self)

    @property
    def users(self) -> Users:
        return Users(self)
