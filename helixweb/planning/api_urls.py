"""REST URLs of planning, under /api/v1/."""

from rest_framework.routers import SimpleRouter

from helixweb.planning import api, forecast_api, mix_api

router = SimpleRouter()
router.register("plan-runs", api.PlanRunViewSet, "api-plan-run")
router.register("model-mixes", mix_api.ModelMixViewSet, "api-model-mix")
router.register("simulations", forecast_api.SimulationViewSet, "api-simulation")
router.register("plans", api.PlanViewSet, "api-plan")

urlpatterns = router.urls
