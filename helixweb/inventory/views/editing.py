"""What every edit and delete page of the inventory does alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from helixweb.inventory import services
from helixweb.inventory.services import InventoryError, NameTaken
from planner.domain.errors import PlannerError

UNPROCESSABLE = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Words around a form, and where it leads back to."""

    title: str
    submit: str
    back_url: str
    back_title: str
    intro: str = ""


def by_htmx(request: HttpRequest) -> bool:
    """Whether only the part of the page that changes is wanted."""
    return request.headers.get("HX-Request") == "true"


def edit_page(
    request: HttpRequest,
    form: forms.BaseForm,
    *,
    page: Page,
    save: Callable[[], str],
    template: str = "inventory/edit.html",
) -> HttpResponse:
    """Show the form; when it was posted and is right, `save` it and go where that says.

    What the service refuses is shown at the form, with everything typed still there.
    """
    if form.is_bound and form.is_valid():
        try:
            return redirect(save())
        except NameTaken as error:
            form.add_error("name" if "name" in form.fields else None, str(error))
        except (InventoryError, PlannerError) as error:
            form.add_error(None, str(error))
    context = {"form": form, "page": page}
    status = UNPROCESSABLE if form.is_bound else 200
    return render(request, template, context, status=status)


def delete_page(request: HttpRequest, row: Any, *, page: Page) -> HttpResponse:
    """Ask, then delete."""
    refused = ""
    if request.method == "POST":
        name = str(row)
        try:
            services.delete(row)
        except InventoryError as error:
            refused = str(error)
        else:
            messages.success(request, _("%(name)s is deleted.") % {"name": name})
            return redirect(page.back_url)
    context = {"page": page, "refused": refused}
    status = 409 if refused else 200
    return render(request, "inventory/delete.html", context, status=status)
