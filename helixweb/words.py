"""The reader's language for what knows no Django otherwise, and the words in columns of rows.

A word of a row, such as its state, is kept in English and said in the reader's language by
`gettext(word)` or {% translate word %}. Any package of helixweb may import this.
"""

from django.utils.translation import gettext, gettext_noop, ngettext
from django.utils.translation import gettext_noop as _

__all__ = ["WORDS_OF_ROWS", "gettext", "gettext_noop", "ngettext"]

# Here to be found by makemessages.
WORDS_OF_ROWS = (
    # nodes, their phases, their logs
    _("declared"), _("online"), _("lost"), _("idle"), _("loading"), _("ready"), _("stopping"),
    _("ended"), _("failed"), _("letting go"), _("drained"), _("debug"), _("info"), _("warning"),
    _("error"), _("agent"), _("stage"),
    # profiles and links
    _("measured"), _("imported"), _("estimated"), _("entered"), _("refined"), _("prompt"),
    _("decode"), _("ordered"), _("waiting"), _("measuring"), _("done"), _("bandwidth"),
    _("latency"),
    # deployments, searches and other jobs
    _("deploying"), _("degraded"), _("stopped"), _("superseded"), _("queued"), _("running"),
    _("succeeded"), _("cancelled"), _("search"), _("explanation"), _("simulation"), _("mix"),
    # ways to serve that a plan weighed
    _("pipelines"), _("instances"), _("instances and pipelines"),
    # engines
    _("auto"),
    # what limits
    _("silent node"), _("slow node"), _("KV cache"), _("host CPU"), _("compute"), _("admission"),
    _("nothing"), _("unknown"),
    # how a request ended
    _("stop"), _("length"),
    # why a search ended
    _("bound reached"), _("time limit"), _("accepted"), _("heuristic"),
    # the change log and join tokens
    _("cluster"), _("node"), _("coordinator"), _("link"), _("profile"), _("added"), _("changed"),
    _("removed"), _("noted"), _("joined"), _("online again"), _("fell silent"),
    _("announced itself anew"), _("taken in again"), _("told to end"),
    # log entries about users, and the columns that they changed
    _("members"), _("role"), _("is active"), _("logged in"), _("logged out"), _("login link made"),
    _("logged out everywhere"), _("credential revoked"), _("revoked"), _("by single sign-on"),
    _("wrong user name or password"), _("too many failed attempts"),
    _("single sign-on: no group has a role"), _("refused"),
    # labels that forms make of the names of columns
    _("Username"), _("Name"), _("Coordinator region"), _("Mean prompt tokens"),
    _("Mean output tokens"), _("Region"), _("Price per hour"), _("Role"), _("Members"),
    _("Direction"), _("Bytes per layer"), _("Activation bytes per token"), _("Checkpoint"),
    _("Model"), _("Placer"), _("Solver"), _("Seed"), _("Cluster"), _("Workload"), _("Seconds"),
    _("Replanning"), _("Threshold"), _("Severity"), _("Enabled"), _("Channels"), _("Channel"),
    _("State"), _("Way"), _("Rule"), _("Subject"), _("Comment"), _("Architecture"), _("Engine"),
    _("Node"), _("Becomes"), _("Scopes"), _("Theme"), _("Language"),
)  # fmt: skip
