"""Answers and what they answer are written in one transaction, so no request claims a key before."""

from typing import Any

from django.db import migrations


def forget_claims(apps: Any, schema_editor: Any) -> None:
    """Requests that were at work when the site ended have no answer."""
    apps.get_model("rest", "KeptAnswer").objects.filter(answer=b"").delete()


class Migration(migrations.Migration):
    dependencies = [("rest", "0001_kept_answers")]
    operations = [
        migrations.RunPython(forget_claims, migrations.RunPython.noop),
        migrations.RemoveField("keptanswer", "claim"),
        migrations.RemoveField("keptanswer", "claimed_until"),
    ]
