"""Pages of planning."""

from django.urls import path

from helixweb.planning import views

urlpatterns = [
    path("plans/", views.plan_runs, name="plan-runs"),
    path("plans/new", views.plan_run_new, name="plan-run-new"),
    path("plans/new/fit", views.plan_run_preview, name="plan-run-preview"),
    path("plans/new/starts", views.plan_run_starts, name="plan-run-starts"),
    path("plans/<int:pk>/", views.plan_run, name="plan-run"),
    path("plans/<int:pk>/cancel", views.plan_run_cancel, name="plan-run-cancel"),
    path("plans/<int:pk>/accept", views.plan_run_accept, name="plan-run-accept"),
    path("plans/<int:pk>/extend", views.plan_run_extend, name="plan-run-extend"),
]
