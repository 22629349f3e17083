"""Every address of the API. tests/console/api lists them with who may do what."""

from __future__ import annotations

from django.urls import path

from console.api import tunings

urlpatterns = [
    path("versions/<str:version_id>/tunings", tunings.VersionTunings.as_view(), name="api_version_tunings"),
    path("tunings/<str:tuning_id>", tunings.Tuning.as_view(), name="api_tuning"),
    path("tunings/<str:tuning_id>/cancel", tunings.CancelTuning.as_view(), name="api_tuning_cancel"),
    path("tunings/<str:tuning_id>/apply", tunings.ApplyTuning.as_view(), name="api_tuning_apply"),
]
