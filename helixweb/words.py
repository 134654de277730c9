"""The reader's language for what knows no Django otherwise, and the words in columns of rows.

A word of a row, such as its state, is kept in English and said in the reader's language by
`gettext(word)` or {% translate word %}. Any package of helixweb may import this.
"""

from django.utils.translation import gettext, gettext_noop, ngettext

__all__ = ["WORDS_OF_ROWS", "gettext", "gettext_noop", "ngettext"]

# Here to be found by makemessages.
WORDS_OF_ROWS = (
    # nodes, their phases, their logs
    gettext_noop("declared"), gettext_noop("online"), gettext_noop("lost"),
    gettext_noop("idle"), gettext_noop("loading"), gettext_noop("ready"),
    gettext_noop("stopping"), gettext_noop("failed"),
    gettext_noop("letting go"), gettext_noop("drained"),
    gettext_noop("debug"), gettext_noop("info"), gettext_noop("warning"), gettext_noop("error"),
    gettext_noop("agent"), gettext_noop("stage"),
    # profiles and links
    gettext_noop("measured"), gettext_noop("imported"), gettext_noop("estimated"),
    gettext_noop("entered"),
    gettext_noop("refined"), gettext_noop("prompt"), gettext_noop("decode"),
    gettext_noop("ordered"), gettext_noop("waiting"), gettext_noop("measuring"),
    gettext_noop("done"),
    gettext_noop("bandwidth"), gettext_noop("latency"),
    # deployments, searches and other jobs
    gettext_noop("deploying"), gettext_noop("degraded"), gettext_noop("stopped"),
    gettext_noop("superseded"), gettext_noop("queued"), gettext_noop("running"),
    gettext_noop("succeeded"), gettext_noop("cancelled"),
    gettext_noop("search"), gettext_noop("explanation"), gettext_noop("simulation"),
    gettext_noop("mix"),
    # ways to serve that a plan weighed
    gettext_noop("pipelines"), gettext_noop("instances"), gettext_noop("instances and pipelines"),
    # what limits
    gettext_noop("silent node"), gettext_noop("slow node"), gettext_noop("KV cache"),
    gettext_noop("host CPU"),
    gettext_noop("compute"), gettext_noop("admission"), gettext_noop("nothing"),
    gettext_noop("unknown"),
    # how a request ended
    gettext_noop("stop"), gettext_noop("length"),
    # why a search ended
    gettext_noop("bound reached"), gettext_noop("time limit"), gettext_noop("accepted"),
    gettext_noop("heuristic"),
    # the change log and join tokens
    gettext_noop("cluster"), gettext_noop("node"), gettext_noop("coordinator"),
    gettext_noop("link"),
    gettext_noop("profile"),
    gettext_noop("added"), gettext_noop("changed"), gettext_noop("removed"),
    gettext_noop("noted"), gettext_noop("joined"), gettext_noop("online again"),
    gettext_noop("fell silent"), gettext_noop("announced itself anew"),
    gettext_noop("taken in again"), gettext_noop("told to end"),
    # what is noted of people, and the columns of what they changed
    gettext_noop("members"), gettext_noop("role"), gettext_noop("is active"),
    gettext_noop("logged in"), gettext_noop("logged out"), gettext_noop("login link made"),
    gettext_noop("logged out everywhere"), gettext_noop("credential revoked"),
    gettext_noop("revoked"), gettext_noop("by single sign-on"),
    gettext_noop("wrong user name or password"), gettext_noop("too many failed attempts"),
    gettext_noop("single sign-on: no group has a role"), gettext_noop("refused"),
    # links that do not work: the templates of runtime.protocol.reach
    gettext_noop(
        "%(source)s is refused at %(place)s, where %(target)s listens: allow this TCP port through "
        "the firewall, or restart %(target)s with --advertise and the address that leads to it"
    ),
    gettext_noop(
        "%(source)s cannot reach %(target)s at %(place)s: allow this TCP port through the firewall"
        "; if %(target)s is behind NAT, forward a port to it and restart it with --advertise"
    ),
    gettext_noop(
        "%(source)s cannot reach %(target)s at %(place)s, which is loopback: restart %(target)s "
        "with --data-host and an address that other machines can dial"
    ),
    gettext_noop(
        "%(source)s cannot fetch weights from %(target)s at %(place)s and takes them from other "
        "nodes, the site or the hub: allow this TCP port through the firewall (behind NAT, forward "
        "it under the same number), or restart %(target)s with --weights-port and an open port"
    ),
    # why an engine computes a model, or none can: runtime.checkpoints.engine_fit
    gettext_noop("the model cannot be cut into stages: %(why)s"),
    gettext_noop("the deployment asks for it"),
    gettext_noop("the node's agent was started with it"),
    gettext_noop("the weights are a GGUF file"),
    gettext_noop("the weights are %(kind)s"),
    gettext_noop("its kernels are the fastest on a GPU"),
    gettext_noop("HelixWeb has a decoder of its own for the family %(family)s"),
    gettext_noop("HelixWeb has no decoder of its own for the family %(family)s"),
    gettext_noop("transformers runs the family %(family)s, slowly: vLLM cannot run it here"),
    gettext_noop("vLLM is not installed"),
    gettext_noop("the weights are a GGUF file, which vLLM does not read"),
    gettext_noop("the GPU has compute capability %(capability)s, vLLM needs %(least)s"),
    gettext_noop("the weights are %(kind)s, which HelixWeb's own engine does not read"),
    gettext_noop("vLLM has no kernel for experts with %(kind)s weights on this device"),
    gettext_noop("vLLM has no kernel for %(kind)s weights on this device"),
    gettext_noop("the weights are quantised (%(kind)s), which needs vLLM on this node"),
    gettext_noop("run `helix-agent install-engine vllm` on the node, and restart its agent"),
    gettext_noop("choose the engine helix for it, or auto"),
    gettext_noop("choose the engine vllm for it, or auto"),
    gettext_noop("choose the engine helix, or give the model as a folder with safetensors"),
    gettext_noop("choose a checkpoint of the model with weights of another kind"),
    gettext_noop("run it as instances, on machines that hold all of it"),
    # labels that forms make of the names of columns
    gettext_noop("Username"), gettext_noop("Name"), gettext_noop("Coordinator region"),
    gettext_noop("Mean prompt tokens"), gettext_noop("Mean output tokens"), gettext_noop("Region"),
    gettext_noop("Price per hour"), gettext_noop("Role"), gettext_noop("Members"),
    gettext_noop("Direction"), gettext_noop("Bytes per layer"),
    gettext_noop("Activation bytes per token"), gettext_noop("Checkpoint"), gettext_noop("Model"),
    gettext_noop("Placer"), gettext_noop("Solver"), gettext_noop("Seed"), gettext_noop("Cluster"),
    gettext_noop("Workload"), gettext_noop("Seconds"), gettext_noop("Replanning"),
)  # fmt: skip
