"""Pages of the inventory."""

from django.urls import path

from helixweb.inventory.views import changes, clusters, models, network, nodes, profiles

urlpatterns = [
    path("nodes/", nodes.nodes, name="nodes"),
    path("nodes/bulk", nodes.nodes_bulk, name="nodes-bulk"),
    path("nodes/nodes.csv", nodes.nodes_csv, name="nodes-csv"),
    path("settings/join-tokens/", clusters.join_tokens, name="join-tokens"),
    path(
        "settings/join-tokens/<int:pk>/revoke", clusters.join_token_revoke, name="join-token-revoke"
    ),
    path("changes/", changes.changes, name="changes"),
    path("changes/changes.csv", changes.changes_csv, name="changes-csv"),
    path("clusters/", clusters.clusters, name="clusters"),
    path("clusters/demo", clusters.cluster_demo, name="cluster-demo"),
    path("clusters/import", clusters.cluster_import, name="cluster-import"),
    path("clusters/<int:pk>/", clusters.cluster, name="cluster"),
    path("clusters/<int:pk>/join", clusters.cluster_join, name="cluster-join"),
    path(
        "clusters/<int:pk>/problem/<int:model_pk>", clusters.cluster_export, name="cluster-export"
    ),
    path("clusters/<int:pk>/nodes/<int:node_pk>/", nodes.node, name="node"),
    path("clusters/<int:pk>/network/", network.network, name="network"),
    path("profiles/", profiles.profiles, name="profiles"),
    path("profiles/<int:pk>/", profiles.profile, name="profile"),
    path("profiles/<int:pk>/profile.json", profiles.profile_export, name="profile-export"),
    path(
        "profiles/<int:pk>/versions/<int:version_pk>/use",
        profiles.profile_version_use,
        name="profile-version-use",
    ),
    path("profiles/import", profiles.profile_import, name="profile-import"),
    path(
        "clusters/<int:pk>/profiles/estimate",
        profiles.EstimatePages().view("new"),
        name="profile-estimate",
    ),
    path("models/", models.models, name="models"),
    path("models/read", models.model_read, name="model-read"),
    path("models/<int:pk>/", models.model, name="model"),
]
for pages in (
    clusters.ClusterPages(),
    clusters.CoordinatorPages(),
    nodes.NodePages(),
    network.LinkPages(),
    network.RegionLinkPages(),
    network.SharedBandwidthPages(),
    profiles.ProfilePages(),
    models.ModelPages(),
):
    urlpatterns += pages.urls
