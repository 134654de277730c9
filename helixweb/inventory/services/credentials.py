"""Takes back the credential of one machine; it can only join anew, with a token."""

from django.db import transaction
from django.utils import timezone
from django.utils.translation import gettext_noop

from helixweb.common import events
from helixweb.common.sentences import sentence
from helixweb.inventory.models import Change, Coordinator, Node
from helixweb.inventory.services.change_log import record
from helixweb.inventory.services.joining import announce


def revoke_credential(process: Node | Coordinator) -> bool:
    """Its open stream ends too; False: it had none. Joining anew under the same name gives it
    another, which is also how a credential is changed for a fresh one."""
    with transaction.atomic():
        rows = type(process).objects.filter(pk=process.pk).exclude(credential_hash="")
        if not rows.update(credential_hash=""):
            return False
        record(process, Change.Action.NOTED, text="credential revoked")
        said = sentence(gettext_noop("The credential of %(name)s was revoked."), name=process.name)
        announce(process, now=timezone.now(), said=said)
        kind = "agent" if isinstance(process, Node) else "coordinator"
        events.emit(f"{kind}:{process.pk}", "desired", {})  # its stream reads anew, and ends
    return True
