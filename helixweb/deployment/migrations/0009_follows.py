from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0008_repairs"),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="follows_generation",
            field=models.PositiveIntegerField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name="deployment",
            name="took_over_at",
            field=models.DateTimeField(blank=True, null=True),
        ),
    ]
