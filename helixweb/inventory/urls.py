"""Pages of the inventory."""

from django.urls import path

from helixweb.inventory.views import (
    changes,
    clusters,
    models,
    network,
    node_lists,
    nodes,
    profiles,
    shared_bandwidths,
    tokens,
)

urlpatterns = [
    path("nodes/", node_lists.nodes, name="nodes"),
    path("nodes/bulk", node_lists.nodes_bulk, name="nodes-bulk"),
    path("nodes/nodes.csv", node_lists.nodes_csv, name="nodes-csv"),
    path("settings/join-tokens/", tokens.join_tokens, name="join-tokens"),
    path(
        "settings/join-tokens/<int:pk>/revoke", tokens.join_token_revoke, name="join-token-revoke"
    ),
    path("changes/", changes.changes, name="changes"),
    path("changes/changes.csv", changes.changes_csv, name="changes-csv"),
    path("clusters/", clusters.clusters, name="clusters"),
    path("clusters/new", clusters.cluster_new, name="cluster-new"),
    path("clusters/demo", clusters.cluster_demo, name="cluster-demo"),
    path("clusters/import", clusters.cluster_import, name="cluster-import"),
    path("clusters/<int:pk>/", clusters.cluster, name="cluster"),
    path("clusters/<int:pk>/edit", clusters.cluster_edit, name="cluster-edit"),
    path("clusters/<int:pk>/delete", clusters.cluster_delete, name="cluster-delete"),
    path("clusters/<int:pk>/join", clusters.cluster_join, name="cluster-join"),
    path(
        "clusters/<int:pk>/problem/<int:model_pk>", clusters.cluster_export, name="cluster-export"
    ),
    path(
        "clusters/<int:pk>/coordinators/<int:coordinator_pk>/delete",
        clusters.coordinator_delete,
        name="coordinator-delete",
    ),
    path("clusters/<int:pk>/nodes/new", nodes.node_new, name="node-new"),
    path("clusters/<int:pk>/nodes/<int:node_pk>/", nodes.node, name="node"),
    path("clusters/<int:pk>/nodes/<int:node_pk>/edit", nodes.node_edit, name="node-edit"),
    path("clusters/<int:pk>/nodes/<int:node_pk>/delete", nodes.node_delete, name="node-delete"),
    path("clusters/<int:pk>/network/", network.network, name="network"),
    path("clusters/<int:pk>/links/new", network.link_new, name="link-new"),
    path("clusters/<int:pk>/links/<int:link_pk>/edit", network.link_edit, name="link-edit"),
    path("clusters/<int:pk>/links/<int:link_pk>/delete", network.link_delete, name="link-delete"),
    path("clusters/<int:pk>/region-links/new", network.region_link_new, name="region-link-new"),
    path(
        "clusters/<int:pk>/region-links/<int:link_pk>/edit",
        network.region_link_edit,
        name="region-link-edit",
    ),
    path(
        "clusters/<int:pk>/region-links/<int:link_pk>/delete",
        network.region_link_delete,
        name="region-link-delete",
    ),
    path(
        "clusters/<int:pk>/shared-bandwidths/new",
        shared_bandwidths.shared_bandwidth_new,
        name="shared-bandwidth-new",
    ),
    path(
        "clusters/<int:pk>/shared-bandwidths/<int:shared_pk>/edit",
        shared_bandwidths.shared_bandwidth_edit,
        name="shared-bandwidth-edit",
    ),
    path(
        "clusters/<int:pk>/shared-bandwidths/<int:shared_pk>/delete",
        shared_bandwidths.shared_bandwidth_delete,
        name="shared-bandwidth-delete",
    ),
    path("profiles/", profiles.profiles, name="profiles"),
    path("profiles/<int:pk>/", profiles.profile, name="profile"),
    path("profiles/<int:pk>/profile.json", profiles.profile_export, name="profile-export"),
    path(
        "profiles/<int:pk>/versions/<int:version_pk>/use",
        profiles.profile_version_use,
        name="profile-version-use",
    ),
    path("profiles/import", profiles.profile_import, name="profile-import"),
    path("clusters/<int:pk>/profiles/new", profiles.profile_new, name="profile-new"),
    path("clusters/<int:pk>/profiles/estimate", profiles.profile_estimate, name="profile-estimate"),
    path(
        "clusters/<int:pk>/profiles/<int:profile_pk>/delete",
        profiles.profile_delete,
        name="profile-delete",
    ),
    path("models/", models.models, name="models"),
    path("models/new", models.model_new, name="model-new"),
    path("models/read", models.model_read, name="model-read"),
    path("models/<int:pk>/", models.model, name="model"),
    path("models/<int:pk>/edit", models.model_edit, name="model-edit"),
    path("models/<int:pk>/delete", models.model_delete, name="model-delete"),
]
