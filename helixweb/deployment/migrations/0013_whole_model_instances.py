from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0012_profilings"),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="backend_by_node",
            field=models.JSONField(default=dict),
        ),
        migrations.AddField(
            model_name="deployment",
            name="theta",
            field=models.FloatField(default=2.0),
        ),
        migrations.AddField(
            model_name="nodeassignment",
            name="instances",
            field=models.JSONField(default=list),
        ),
        migrations.AddField(
            model_name="nodeassignment",
            name="observed_instances",
            field=models.JSONField(default=list),
        ),
    ]
