"""Pages that make, change and delete rows."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from django.contrib import messages
from django.db import models
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _

from helixweb.access.needs import OPERATOR, Need, needs
from helixweb.common.pages import form_page
from helixweb.common.queries import within
from helixweb.inventory.models import Cluster
from helixweb.inventory.services import records
from helixweb.inventory.services.errors import InventoryError, NameTaken
from planner import PlannerError


def json_file(name: str, document: Mapping[str, Any]) -> HttpResponse:
    """The document as a file to be saved."""
    disposition = {"Content-Disposition": f'attachment; filename="{name}"'}
    return JsonResponse(document, json_dumps_params={"indent": 1}, headers=disposition)


def import_page(
    request: HttpRequest,
    form_class: Any,
    *,
    template: str,
    store: Callable[[dict[str, Any]], tuple[str, str]],
) -> HttpResponse:
    """A file becomes a row, or nothing does and the page says why, with the text in the form.

    `store` is called with what the form says, and returns a message and the URL to go on to.
    """
    if request.method == "GET":
        form = form_class(initial={"cluster": request.GET.get("cluster")}, scope=request)
        return form_page(request, template, form)
    form = form_class(request.POST, request.FILES, scope=request)
    if form.is_valid():
        try:
            message, url = store(form.cleaned_data)
        except (InventoryError, PlannerError) as error:
            form.add_error("text", str(error))
            form.data = request.POST.copy()
            form.data["text"] = form.cleaned_data["problem_text"]
        else:
            messages.success(request, message)
            return redirect(url)
    return form_page(request, template, form)


class ResourcePages:
    """The pages that make, change and delete rows of one resource, by its form.

    URLs are NAME-new, NAME-edit and NAME-delete below `at`, where `pk` is the cluster's and
    `row_pk` the row's; of a resource without cluster `pk` is the row's. `what` is what people call
    a row; `needed` says by page what users need, if not the role operator; `intros`, `submits` and
    `titles` are texts of the pages that need others than usual, and may name `%(row)s`, of a new
    row `%(cluster)s`, and what `values_of` adds.
    """

    name: ClassVar[str]
    at: ClassVar[str]
    what: ClassVar[Any]
    model: ClassVar[type[models.Model]]
    form: ClassVar[Any] = None
    pages: ClassVar[tuple[str, ...]] = ("new", "edit", "delete")
    intros: ClassVar[Mapping[str, Any]] = {}
    submits: ClassVar[Mapping[str, Any]] = {}
    titles: ClassVar[Mapping[str, Any]] = {}
    related: ClassVar[tuple[str, ...]] = ("cluster",)
    needed: ClassVar[Mapping[str, Need]] = {}
    template: ClassVar[str] = "inventory/edit.html"

    def list_place(self, cluster: Any) -> tuple[str, str]:
        """URL and title of the page that lists the rows: that of their cluster."""
        return reverse("cluster", args=[cluster.pk]), cluster.name

    def row_place(self, row: Any) -> tuple[str, str]:
        """URL and title of the row's own page; the list's if it has none."""
        return self.list_place(getattr(row, "cluster", None))

    def after_new(self, request: HttpRequest, row: Any) -> str | HttpResponse:
        """The URL to redirect to after a row is created, or the response."""
        return self.list_place(getattr(row, "cluster", None))[0]

    def values_of(self, row: Any) -> dict[str, Any]:
        """Additional values for the texts of a row's pages."""
        return {}

    def initial_of_new(self, request: HttpRequest, cluster: Any) -> dict[str, Any] | None:
        """Initial values of the form of a new row."""
        return None

    def create(self, request: HttpRequest, **values: Any) -> Any:
        return records.create(self.model, **values)

    def view(self, page: str, *, of: Any = None, by: str = "pk") -> Callable[..., HttpResponse]:
        """The Django view of "new", "edit" or "delete"; `of`, `by`: as for `@needs`."""
        shown: Callable[..., HttpResponse] = getattr(self, f"{page}_page")
        need = self.needed.get(page, OPERATOR)
        of = of or (Cluster if self._has_cluster else self.model)
        row = Cluster if page == "new" and self._has_cluster else None
        return needs(need, need, of=of, row=row, by=by)(shown)

    @property
    def urls(self) -> list[URLPattern]:
        row = "<int:row_pk>" if self._has_cluster else "<int:pk>"
        ends = {"new": "new", "edit": f"{row}/edit", "delete": f"{row}/delete"}
        return [
            path(f"{self.at}/{ends[page]}", self.view(page), name=f"{self.name}-{page}")
            for page in self.pages
        ]

    def new_page(self, request: HttpRequest, cluster: Cluster | None = None) -> HttpResponse:
        owner = {} if cluster is None else {"cluster": cluster}
        initial = self.initial_of_new(request, cluster)
        form = self.form(request.POST or None, initial=initial, **owner)
        page = self._page("new", None, self.list_place(cluster), cluster)

        def save() -> str | HttpResponse:
            return self.after_new(request, self.create(request, **owner, **_values_of(form)))

        return self._saved(request, form, page, save)

    def edit_page(self, request: HttpRequest, **ids: int) -> HttpResponse:
        row = self._row(request, **ids)
        owner = {"cluster": row.cluster} if self._has_cluster else {}
        page = self._page("edit", row, self.row_place(row))
        form = self.form(request.POST or None, instance=row, **owner)

        def save() -> str:
            fresh = self._row(request, **ids)  # a form may have changed `row`
            records.update(fresh, **_values_of(form))
            return page["back_url"]

        return self._saved(request, form, page, save)

    def delete_page(self, request: HttpRequest, **ids: int) -> HttpResponse:
        """Ask, then delete."""
        row = self._row(request, **ids)
        page = self._page("delete", row, self.list_place(getattr(row, "cluster", None)))
        refused = ""
        if request.method == "POST":
            name = str(row)
            try:
                records.delete(row)
            except InventoryError as error:
                refused = str(error)
            else:
                messages.success(request, _("%(name)s is deleted.") % {"name": name})
                return redirect(page["back_url"])
        context = {"page": page, "refused": refused}
        return render(request, "inventory/delete.html", context, status=409 if refused else 200)

    def _saved(
        self,
        request: HttpRequest,
        form: Any,
        page: Mapping[str, str],
        save: Callable[[], str | HttpResponse],
    ) -> HttpResponse:
        """Show the form; when it was posted and is right, `save` it and go where that says, or
        show what it answers. What is refused is shown at the form, with everything typed in it."""
        if form.is_bound and form.is_valid():
            try:
                answer = save()
                return redirect(answer) if isinstance(answer, str) else answer
            except NameTaken as error:
                form.add_error("name" if "name" in form.fields else None, str(error))
            except (InventoryError, PlannerError) as error:
                form.add_error(None, str(error))
        return form_page(request, self.template, form, page=page)

    @property
    def _has_cluster(self) -> bool:
        return "cluster" in self.related

    def _row(self, request: HttpRequest, pk: int, row_pk: int | None = None) -> Any:
        rows: Any = within(self.model._default_manager.all(), request)
        rows = rows.select_related(*self.related) if self.related else rows
        if row_pk is None:
            return get_object_or_404(rows, pk=pk)
        return get_object_or_404(rows, pk=row_pk, cluster_id=pk)

    def _page(
        self, page: str, row: Any, place: tuple[str, str], cluster: Any = None
    ) -> dict[str, str]:
        """Words around the form, and where it leads back to."""
        titles = {
            "new": _("New %(what)s"),
            "edit": _("Edit %(what)s %(row)s"),
            "delete": _("Delete %(what)s %(row)s?"),
            **self.titles,
        }
        submits = {
            "new": _("Add"),
            "edit": _("Save"),
            "delete": _("Delete %(what)s"),
            **self.submits,
        }
        more = {} if row is None else self.values_of(row)
        values = {"what": self.what, "row": row, "cluster": cluster, **more}
        texts = {"title": titles[page], "submit": submits[page], "intro": self.intros.get(page, "")}
        words = {name: str(text) % values for name, text in texts.items()}
        return {**words, "back_url": place[0], "back_title": place[1]}


def _values_of(form: Any) -> dict[str, Any]:
    """Columns of the row, of a valid form."""
    values: dict[str, Any] = form.row_fields() if hasattr(form, "row_fields") else form.cleaned_data
    return values
