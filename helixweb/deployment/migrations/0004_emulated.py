from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("deployment", "0003_tensor_parallel"),
    ]

    operations = [
        migrations.AddField(
            model_name="deployment",
            name="emulated",
            field=models.BooleanField(default=False),
        ),
    ]
