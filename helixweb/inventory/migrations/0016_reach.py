from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("inventory", "0015_join_tokens_of_several_machines"),
    ]

    operations = [
        migrations.AddField(
            model_name="coordinator",
            name="reach",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                editable=False,
            ),
        ),
        migrations.AddField(
            model_name="node",
            name="reach",
            field=models.JSONField(
                blank=True,
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                editable=False,
            ),
        ),
    ]
