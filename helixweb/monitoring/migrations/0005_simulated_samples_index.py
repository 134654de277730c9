from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0005_shared_bandwidths"),
        ("monitoring", "0004_transfers_of_requests"),
        ("planning", "0007_what_if"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="metricsample",
            index=models.Index(
                condition=models.Q(("simulated_plan__isnull", False)),
                fields=["cluster", "second"],
                name="metric_sample_simulated",
            ),
        ),
    ]
