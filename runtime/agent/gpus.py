"""Which GPUs this machine has, and how they are shared out among its nodes. Loads no torch.

GPUs are known by their PCI address. NVIDIA's are told to CUDA by their position in the order of
these addresses, which CUDA counts in only with CUDA_DEVICE_ORDER=PCI_BUS_ID; AMD's to ROCm by
their unique id.
"""

import json
import logging
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from importlib import metadata
from operator import itemgetter

from runtime.platforms import CUDA_ORDER, AlreadyLocked, lock_file, pci_device_file
from runtime.protocol.complaints import StartRefused
from runtime.protocol.control import Gpu

logger = logging.getLogger(__name__)

# What says which GPUs a process may use: of ROCm, HIP (which reads CUDA's too) and CUDA.
VISIBLE = ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_NVIDIA_SMI = (
    "nvidia-smi",
    "--query-gpu=pci.bus_id,uuid,memory.total,mig.mode.current,name",
    "--format=csv,noheader,nounits",
)
_ROCM_SMI = (
    "rocm-smi", "--showbus", "--showuniqueid", "--showproductname", "--showmeminfo", "vram",
    "--json",
)  # fmt: skip
_TIMEOUT_S = 30.0
_MIB = 1 << 20
_SMALLEST_BYTES = 1 << 30  # below are GPUs within CPUs, which share main memory


class GpuInUse(StartRefused):
    """Another agent has the GPU; the message names it and the remedy."""


class Vendor(Enum):
    """Whose GPU it is, and so which libraries run on it."""

    NVIDIA = "nvidia"
    AMD = "amd"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGpu:
    """A GPU of this machine. `pci`: its address, like `0000:65:00.0`.

    `index`: its position among those of its vendor, as CUDA or ROCm counts them. `uid`: as the
    vendor names it for ever, `GPU-…`; empty if it does not.
    """

    vendor: Vendor
    pci: str
    index: int
    uid: str
    name: str
    memory_bytes: int

    @property
    def announced(self) -> Gpu:
        """As the site is told of it."""
        return Gpu(name=self.name, memory_bytes=self.memory_bytes)


def find_gpus(environ: Mapping[str, str]) -> tuple[FoundGpu, ...]:
    """The GPUs that a process with these variables may use, by PCI address.

    Of one vendor: PyTorch is built for either. None where the vendor's tool is missing or fails.
    """
    nvidia = visible(parse_nvidia_smi(_output_of(_NVIDIA_SMI)), environ)
    amd = visible(parse_rocm_smi(_output_of(_ROCM_SMI)), environ)
    if nvidia and amd:
        used, unused = (amd, nvidia) if _torch_is_for_amd() else (nvidia, amd)
        logger.warning(
            "the installed PyTorch runs on %s GPUs only, so these are left out: %s",
            used[0].vendor.name,
            ", ".join(f"{gpu.name} ({gpu.pci})" for gpu in unused),
        )
        return used
    return nvidia or amd


def parse_nvidia_smi(listing: str) -> tuple[FoundGpu, ...]:
    """Lines `PCI, UUID, MIB, MIG, NAME`.

    A GPU that is split into MIG instances, or does not tell its memory as it shares the CPU's, is
    left out.
    """
    rows = [[cell.strip() for cell in line.split(",", 4)] for line in listing.splitlines()]
    rows = sorted((row for row in rows if len(row) == 5), key=lambda row: _pci(row[0]))
    found = []
    for index, (pci, uuid, memory_mib, mig, name) in enumerate(rows):
        if mig == "Enabled":
            logger.warning("%s (%s) is left out: it is split into MIG instances", name, pci)
        elif not memory_mib.isdecimal():
            logger.warning("%s (%s) is left out: nvidia-smi tells no memory of it", name, pci)
        else:
            found.append(
                FoundGpu(
                    vendor=Vendor.NVIDIA,
                    pci=_pci(pci),
                    index=index,
                    uid=uuid,
                    name=name,
                    memory_bytes=int(memory_mib) * _MIB,
                )
            )
    return tuple(found)


def parse_rocm_smi(listing: str) -> tuple[FoundGpu, ...]:
    """The JSON of rocm-smi: an object `cardN` for each GPU. GPUs within CPUs are left out."""
    _warnings, brace, rest = listing.partition("{")
    try:
        told = json.loads(brace + rest) if brace else {}
    except ValueError as error:
        logger.warning("rocm-smi printed no JSON, so no AMD GPU is announced: %s", error)
        return ()
    cards = [
        (int(name.removeprefix("card")), {key.lower(): value for key, value in card.items()})
        for name, card in told.items()
        if re.fullmatch(r"card\d+", name) and isinstance(card, dict)
    ]
    # ROCm counts in the order of the driver's nodes; older tools do not tell it.
    nodes = [str(card.get("node id", "")) for _number, card in cards]
    if all(map(str.isdecimal, nodes)):
        cards.sort(key=lambda one: int(str(one[1]["node id"])))
    else:
        cards.sort(key=itemgetter(0))
    found = []
    for index, (number, card) in enumerate(cards):
        pci, memory = str(card.get("pci bus", "")), str(card.get("vram total memory (b)", ""))
        name = str(card.get("card series") or card.get("card model") or "AMD GPU")
        if not (pci and memory.isdecimal()):
            logger.warning("card%d (%s) is left out: rocm-smi tells no memory of it", number, name)
        elif int(memory) < _SMALLEST_BYTES:
            logger.info("%s (%s) is left out: it shares the memory of the CPU", name, pci)
        else:
            unique = str(card.get("unique id", "")).removeprefix("0x")
            found.append(
                FoundGpu(
                    vendor=Vendor.AMD,
                    pci=_pci(pci),
                    index=index,
                    uid=f"GPU-{unique:0>16}" if re.fullmatch("[0-9a-f]{6,16}", unique) else "",
                    name=name,
                    memory_bytes=int(memory),
                )
            )
    return tuple(sorted(found, key=lambda gpu: gpu.pci))


def visible(gpus: Sequence[FoundGpu], environ: Mapping[str, str]) -> tuple[FoundGpu, ...]:
    """Those of one vendor that the variables in VISIBLE leave a process, in their order there."""
    if not gpus:
        return ()
    is_nvidia = gpus[0].vendor is Vendor.NVIDIA
    hip = "HIP_VISIBLE_DEVICES" if "HIP_VISIBLE_DEVICES" in environ else "CUDA_VISIBLE_DEVICES"
    left = {gpu.index: gpu for gpu in gpus}
    for name in ("CUDA_VISIBLE_DEVICES",) if is_nvidia else ("ROCR_VISIBLE_DEVICES", hip):
        if name in environ:
            left = dict(enumerate(_named(environ[name], left)))
    return tuple(left.values())


def _named(value: str, counted: Mapping[int, FoundGpu]) -> Iterable[FoundGpu]:
    """The GPUs of a list like `0,2` or `GPU-1f…`, up to the first that is none, as drivers do."""
    for word in filter(None, (word.strip() for word in value.split(","))):
        if word.isdecimal():
            gpu = counted.get(int(word))
        else:
            gpu = next((one for one in counted.values() if one.uid.startswith(word)), None)
        if gpu is None:
            if word != "-1":
                logger.warning("there is no GPU %r on this machine, nor are those after it", word)
            return
        yield gpu


def groups_of(
    gpus: Sequence[FoundGpu], *, tensor_parallel: int | None
) -> tuple[tuple[FoundGpu, ...], ...]:
    """The GPUs of each node: one, or `tensor_parallel` of a kind; what is left over is alone."""
    degree = tensor_parallel or 1
    groups: list[tuple[FoundGpu, ...]] = []
    kinds: dict[tuple[str, int], list[FoundGpu]] = {}
    for gpu in gpus:
        kinds.setdefault((gpu.name, gpu.memory_bytes), []).append(gpu)
    for alike in kinds.values():
        whole = len(alike) - len(alike) % degree
        groups += [tuple(alike[first : first + degree]) for first in range(0, whole, degree)]
        groups += [(gpu,) for gpu in alike[whole:]]
    return tuple(sorted(groups, key=lambda group: group[0].pci))


def devices_of(gpus: Sequence[FoundGpu]) -> tuple[int, ...]:
    """What CUDA_VISIBLE_DEVICES calls each in a process that has these GPUs.

    ROCm counts anew what ROCR_VISIBLE_DEVICES leaves, CUDA counts all of the machine.
    """
    return tuple(
        gpu.index if gpu.vendor is Vendor.NVIDIA else position for position, gpu in enumerate(gpus)
    )


def pinned(group: Sequence[FoundGpu], environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of a process that has these GPUs and no others."""
    chosen = {k: v for k, v in environ.items() if k not in VISIBLE}
    if group[0].vendor is Vendor.NVIDIA:
        chosen["CUDA_VISIBLE_DEVICES"] = ",".join(str(gpu.index) for gpu in group)
    else:
        chosen["ROCR_VISIBLE_DEVICES"] = ",".join(gpu.uid or str(gpu.index) for gpu in group)
    return {**chosen, **CUDA_ORDER}


@contextmanager
def claimed(gpus: Sequence[FoundGpu], *, shared: bool) -> Iterator[None]:
    """While inside, no other agent of this machine uses these GPUs.

    `shared`: agents that were each told how much memory they may use share one. Nothing is held
    where the system does not show PCI devices as files. Raises GpuInUse.
    """
    with ExitStack() as held:
        for gpu in gpus:
            try:
                file = held.enter_context(pci_device_file(gpu.pci).open())
            except OSError:
                continue
            try:
                lock_file(file, shared=shared)
            except AlreadyLocked:
                raise GpuInUse(
                    f"another agent on this machine uses the {gpu.name} at {gpu.pci}; stop that "
                    "one, choose other GPUs with CUDA_VISIBLE_DEVICES (or ROCR_VISIBLE_DEVICES), "
                    "or start both with --memory"
                ) from None
        yield


def _output_of(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        )
    except FileNotFoundError:
        return ""
    except (OSError, subprocess.SubprocessError) as error:
        logger.warning("%s does not work, so no GPU of it is announced: %s", command[0], error)
        return ""
    return done.stdout


def _pci(address: str) -> str:
    """As Linux writes it: `00000000:65:00.0` of nvidia-smi is `0000:65:00.0`."""
    domain, _, rest = address.strip().lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}" if re.fullmatch("[0-9a-f]+", domain) else address


def _torch_is_for_amd() -> bool:
    try:
        return "rocm" in metadata.version("torch")
    except metadata.PackageNotFoundError:
        return False
