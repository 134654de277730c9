"""Pages of planning."""

from django.urls import path

from helixweb.planning.views import runs, site, studies

urlpatterns = [
    path("plans/", runs.plan_runs, name="plan-runs"),
    path("plans/new", runs.plan_run_new, name="plan-run-new"),
    path("plans/new/fit", runs.plan_run_preview, name="plan-run-preview"),
    path("plans/new/starts", runs.plan_run_starts, name="plan-run-starts"),
    path("plans/new/node-rules", runs.plan_run_node_rules, name="plan-run-node-rules"),
    path("plans/<int:pk>/", runs.plan_run, name="plan-run"),
    path("settings/jobs/", site.jobs_page, name="jobs"),
    path("settings/about/", site.about, name="about"),
    path("plans/<int:pk>/incumbents/<int:incumbent_pk>/", runs.incumbent, name="incumbent"),
    path("plans/<int:pk>/cancel", runs.plan_run_cancel, name="plan-run-cancel"),
    path("plans/<int:pk>/accept", runs.plan_run_accept, name="plan-run-accept"),
    path("plans/<int:pk>/extend", runs.plan_run_extend, name="plan-run-extend"),
    path("plans/<int:pk>/again", runs.plan_run_again, name="plan-run-again"),
    path("plans/<int:pk>/adopt", studies.replan_adopt, name="replan-adopt"),
    path("plans/by-id/<int:pk>/replan", studies.replan_plan, name="replan"),
    path("plans/by-id/<int:pk>/explanation", studies.explanation, name="plan-explanation"),
    path("plans/by-id/<int:pk>/simulations", studies.simulations, name="plan-simulations"),
    path("plans/simulations/<int:pk>/cancel", studies.simulation_cancel, name="simulation-cancel"),
    path("plans/compare", studies.compare_plans, name="plans-compare"),
    path("plans/by-id/<int:pk>/what-if", studies.what_if, name="what-if"),
    path("plans/mixes/new/<int:cluster_pk>", studies.mix_new, name="model-mix-new"),
    path("plans/mixes/<int:pk>/", studies.mix, name="model-mix"),
    path("plans/mixes/<int:pk>/cancel", studies.mix_cancel, name="model-mix-cancel"),
]
