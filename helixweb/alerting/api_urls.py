"""REST URLs of alerting, under /api/v1/."""

from rest_framework.routers import SimpleRouter

from helixweb.alerting import api

router = SimpleRouter()
router.register("alerts", api.AlertViewSet, "api-alert")
router.register("alert-rules", api.RuleViewSet, "api-alert-rule")
router.register("alert-channels", api.ChannelViewSet, "api-alert-channel")
router.register("alert-silences", api.SilenceViewSet, "api-alert-silence")
router.register("alert-deliveries", api.DeliveryViewSet, "api-alert-delivery")

urlpatterns = router.urls
