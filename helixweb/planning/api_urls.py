"""REST URLs of planning, under /api/v1/."""

from rest_framework.routers import SimpleRouter

from helixweb.planning import api

router = SimpleRouter()
router.register("plan-runs", api.PlanRunViewSet, "api-plan-run")
router.register("model-mixes", api.ModelMixViewSet, "api-model-mix")
router.register("simulations", api.SimulationViewSet, "api-simulation")
router.register("plans", api.PlanViewSet, "api-plan")

urlpatterns = router.urls
