"""Forms of the inventory: people write megabits, milliseconds and gigabytes; rows never do."""

import re
from functools import partial
from typing import Any, ClassVar

import django_filters
from django import forms
from django.core.validators import FileExtensionValidator
from django.db import models
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from helixweb.common.forms import ScopedForm
from helixweb.common.long_select import LongSelect
from helixweb.common.number_field import (
    GigabytesField,
    MbitPerSField,
    MillisecondsField,
    NumberField,
)
from helixweb.inventory.columns import NAME_LENGTH, PROFILE_NAME_LENGTH, columns_of
from helixweb.inventory.models import (
    Cluster,
    LanguageModel,
    Link,
    Node,
    Origin,
    Profile,
    RegionLink,
    SharedBandwidth,
)
from helixweb.inventory.process_models import NODE_COLUMNS
from helixweb.inventory.stale_profiles import measured_elsewhere
from helixweb.inventory.validators import (
    validate_curve,
    validate_members,
    validate_name,
    validate_not_negative,
    validate_positive,
)
from planner import COORDINATOR
from planner.roofline import DATA_SHEETS

MAX_PROBLEM_BYTES = 8_000_000


CONNECTION = ("source", "target", "bandwidth_bytes_per_s", "latency_s")


def numbers_of(model: type[models.Model]) -> dict[str, type[forms.Field]]:
    """The fields that show real numbers of the model, for its form's `field_classes`."""
    columns = model._meta.concrete_fields
    return {column.name: NumberField for column in columns if type(column) is models.FloatField}


CLUSTER_FILTER = partial(
    django_filters.ModelChoiceFilter,
    queryset=Cluster.objects.within,
    label=gettext_lazy("Cluster"),
    empty_label=gettext_lazy("all"),
)
MODEL_FILTER = partial(
    django_filters.ModelChoiceFilter,
    queryset=LanguageModel.objects.all(),
    label=gettext_lazy("Model"),
    empty_label=gettext_lazy("all"),
)


class OfCluster:
    """Mixin of forms for rows of a cluster."""

    def __init__(self, *args: Any, cluster: Cluster, **kwargs: Any) -> None:
        self.cluster = cluster
        super().__init__(*args, **kwargs)


class ClusterForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Cluster
        fields = [name for name in columns_of(Cluster) if name != "source"]
        field_classes = numbers_of(Cluster)
        help_texts = {
            "coordinator_region": gettext_lazy("Where the process runs that faces chat clients."),
            "mean_prompt_tokens": gettext_lazy("Plans are made for requests of this mean length."),
            "replanning": gettext_lazy(
                "What to do with a better placement when a node is lost or one more has joined."
            ),
        }


class ImportForm(ScopedForm):
    """A file or pasted text; the text of a refused file comes back for correction."""

    name = forms.CharField(
        required=False,
        max_length=NAME_LENGTH,
        label=gettext_lazy("Cluster name"),
        validators=[validate_name],
        help_text=gettext_lazy("Blank: the name in the file."),
    )
    file = forms.FileField(
        required=False,
        label=gettext_lazy("Problem file"),
        validators=[FileExtensionValidator(["json", "yaml", "yml"])],
        help_text=gettext_lazy("helixweb.problem/1, JSON or YAML."),
    )
    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_PROBLEM_BYTES,
        label=gettext_lazy("or paste its text"),
        widget=forms.Textarea(attrs={"rows": 14, "spellcheck": "false", "class": "mono"}),
    )

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        file, text = cleaned.get("file"), cleaned.get("text", "")
        if file is None and not text.strip():
            if "file" not in self.errors:
                self.add_error("file", _("Choose a file, or paste its text below."))
            return cleaned
        cleaned["name_hint"] = file.name if file else "text"
        if file is not None:
            cleaned["problem_text"] = self._text_of(file)
        else:
            cleaned["problem_text"] = text
        return cleaned

    def _text_of(self, file: Any) -> str:
        if file.size > MAX_PROBLEM_BYTES:
            self.add_error(
                "file",
                _("%(name)s has %(size)s bytes; a problem file has at most %(max_problem_bytes)s.")
                % {
                    "name": file.name,
                    "size": f"{file.size:,}",
                    "max_problem_bytes": f"{MAX_PROBLEM_BYTES:,}",
                },
            )
            return ""
        try:
            text: str = file.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            self.add_error(
                "file",
                _("%(name)s is not UTF-8 text (byte %(start)s); save it as UTF-8.")
                % {"name": file.name, "start": error.start},
            )
            return ""
        return text


class ProfileImportForm(ImportForm):
    """The same for a profile: which cluster gets it."""

    cluster = forms.ModelChoiceField(
        queryset=Cluster.objects.all(), label=gettext_lazy("Cluster"), empty_label=None
    )
    field_order = ["cluster", "name", "file", "text"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].label = _("Profile name")
        file = self.fields["file"]
        file.label, file.help_text = _("Profile file"), "helixweb.profile/1"


class NodeForm(OfCluster, forms.ModelForm):  # type: ignore[type-arg]
    """Declares or changes a node; the profile is one that its cluster has."""

    profile_name = forms.ChoiceField(required=False, label=gettext_lazy("Profile"))
    # Shown once it is needed.
    confirm_profile = forms.BooleanField(
        required=False,
        label=gettext_lazy("Assign this profile all the same"),
        widget=forms.HiddenInput,
    )

    class Meta:
        model = Node
        fields = NODE_COLUMNS
        field_classes = numbers_of(Node)
        help_texts = {
            "region": gettext_lazy("Links between regions apply to all nodes in them."),
            "price_per_hour": gettext_lazy("Blank: its profile's."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = sorted(set(self.cluster.profiles.values_list("name", flat=True)))
        field: Any = self.fields["profile_name"]
        field.choices = [("", _("none yet")), *((name, name) for name in names)]
        if self.instance.uuid is not None:
            self.fields["name"].disabled = True
            self.fields["name"].help_text = _("A node that has joined keeps its name.")

    def clean(self) -> dict[str, Any]:
        """Another node's measurement is assigned only if that was confirmed."""
        cleaned: dict[str, Any] = super().clean() or {}
        is_confirmed = cleaned.pop("confirm_profile", False)
        if "profile_name" in self.changed_data and "profile_name" in cleaned:
            found = measured_elsewhere([self.instance], cleaned["profile_name"])
            if found is not None:
                self.fields["confirm_profile"].widget = forms.CheckboxInput()
                if not is_confirmed:
                    self.add_error("confirm_profile", found[1])
        return cleaned


class _ConnectionForm(OfCluster, forms.ModelForm):  # type: ignore[type-arg]
    """Bandwidth and latency in usual units."""

    bandwidth_bytes_per_s = MbitPerSField(
        label=gettext_lazy("Bandwidth (Mbit/s)"), validators=[validate_positive]
    )
    latency_s = MillisecondsField(
        label=gettext_lazy("One-way latency (ms)"), validators=[validate_not_negative]
    )

    def row_fields(self) -> dict[str, Any]:
        """Columns of the row; no measurement overwrites them."""
        return {**self.cleaned_data, "origin": Origin.ENTERED}


class LinkForm(_ConnectionForm):
    """One directed link between two nodes, or a node and the coordinator."""

    source = forms.ChoiceField(label=gettext_lazy("From"), widget=LongSelect)
    target = forms.ChoiceField(label=gettext_lazy("To"), widget=LongSelect)

    class Meta:
        model = Link
        fields = CONNECTION

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        names = [COORDINATOR, *self.cluster.nodes.values_list("name", flat=True)]
        for end in ("source", "target"):
            field: Any = self.fields[end]
            field.choices = [(name, name) for name in names]


class RegionLinkForm(_ConnectionForm):
    """The link of two regions, for every pair of their nodes without a link of its own."""

    class Meta:
        model = RegionLink
        fields = CONNECTION
        labels = {"source": gettext_lazy("From region"), "target": gettext_lazy("To region")}


class WordsField(forms.CharField):
    """Texts separated by `separator`."""

    separator: ClassVar[str] = ", "

    def to_python(self, value: Any) -> Any:
        words = str(value or "").split(self.separator.strip(" "))
        return [word for each in words if (word := each.strip())]

    def prepare_value(self, value: Any) -> Any:
        return self.separator.join(value) if isinstance(value, list) else value


class MembersField(WordsField):
    """Names, one a line."""

    separator = "\n"
    widget = forms.Textarea(attrs={"rows": 4, "class": "mono", "spellcheck": "false"})


class SharedBandwidthForm(OfCluster, forms.ModelForm):  # type: ignore[type-arg]
    """Bandwidth that several links share."""

    members = MembersField(
        validators=[validate_members],
        help_text=gettext_lazy("Nodes, regions (all their nodes) or coordinator, one a line."),
    )
    direction = forms.ChoiceField(choices=SharedBandwidth.Direction.choices)
    scope = forms.ChoiceField(
        label=gettext_lazy("What counts"), choices=SharedBandwidth.Scope.choices
    )
    bandwidth_bytes_per_s = MbitPerSField(
        label=gettext_lazy("Bandwidth together (Mbit/s)"), validators=[validate_positive]
    )

    class Meta:
        model = SharedBandwidth
        fields = columns_of(SharedBandwidth)


class CurveField(forms.CharField):
    """Numbers separated by blanks, commas or lines; one for each number of layers held."""

    widget = forms.Textarea(attrs={"rows": 3, "class": "mono"})

    def to_python(self, value: Any) -> Any:
        if isinstance(value, list):
            return value
        numbers = []
        for word in re.split(r"[\s,;]+", str(value or "").strip()):
            try:
                numbers.append(float(word))
            except ValueError:
                raise forms.ValidationError(
                    _("%(word)s is not a number; separate numbers by blanks or commas.")
                    % {"word": repr(word)}
                ) from None
        validate_curve(numbers)
        return numbers

    def prepare_value(self, value: Any) -> Any:
        return " ".join(f"{number:g}" for number in value) if isinstance(value, list) else value


class BlankableJSONField(forms.JSONField):
    """Shows nothing where there is nothing, not "null"."""

    def prepare_value(self, value: Any) -> Any:
        return "" if value is None else super().prepare_value(value)


class EstimateForm(OfCluster, forms.Form):
    """Which GPU, for which model."""

    model = forms.ModelChoiceField(LanguageModel.objects.all(), empty_label=None)
    gpu = forms.ChoiceField(choices=[(gpu, gpu) for gpu in sorted(DATA_SHEETS)], label="GPU")
    name = forms.CharField(
        required=False,
        max_length=PROFILE_NAME_LENGTH,
        validators=[validate_name],
        help_text=gettext_lazy("Blank: as the GPU."),
    )


class ProfileForm(OfCluster, forms.ModelForm):  # type: ignore[type-arg]
    """A measured or estimated profile; as many entries as it can hold layers."""

    model = forms.ModelChoiceField(LanguageModel.objects.all(), empty_label=None)
    vram_bytes = GigabytesField(label=gettext_lazy("Memory (GB)"), validators=[validate_positive])
    tokens_per_s = CurveField(
        label=gettext_lazy("Tokens/s"),
        help_text=gettext_lazy("With 1, 2, 3 … layers held, as many as fit."),
    )
    kv_capacity_token_layers = CurveField(
        label=gettext_lazy("KV cache room (tokens x layers)"),
        help_text=gettext_lazy("With 1, 2, 3 … layers held."),
    )
    layer_times = BlankableJSONField(
        required=False,
        label=gettext_lazy("Measured layer times"),
        widget=forms.Textarea(attrs={"rows": 3, "class": "mono", "spellcheck": "false"}),
        help_text=gettext_lazy(
            'As in a problem file: {"prompt": [[tokens, seconds], …], "decode": '
            "[…]}. Blank: estimated from tokens/s."
        ),
    )

    class Meta:
        model = Profile
        fields = (
            "model", "name", "gpu", "vram_bytes", "tokens_per_s", "kv_capacity_token_layers",
            "price_per_hour", "layer_times",
        )  # fmt: skip
        field_classes = numbers_of(Profile)
        labels = {"gpu": "GPU"}
        help_texts = {
            "price_per_hour": gettext_lazy(
                "In the cluster's one currency. Plans for the price need it."
            )
        }

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or {}
        speeds, rooms = cleaned.get("tokens_per_s"), cleaned.get("kv_capacity_token_layers")
        if speeds is not None and rooms is not None and len(speeds) != len(rooms):
            self.add_error(
                "kv_capacity_token_layers",
                _("%(rooms)s entries, but %(speeds)s speeds; give one for each.")
                % {"rooms": len(rooms), "speeds": len(speeds)},
            )
        return cleaned

    def row_fields(self) -> dict[str, Any]:
        """Columns of the row; call after `is_valid`."""
        return {**self.cleaned_data, "max_layers": len(self.cleaned_data["tokens_per_s"])}
