"""The Versions tab: policy, and load, unload and delete of one version."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_GET, require_POST

from console.catalog import policy as policies
from console.catalog import selectors
from console.catalog.actions import attempt
from console.catalog.forms import PolicyForm
from console.catalog.saved import saved_config
from console.catalog.steps import steps_of, users_of
from console.catalog.tabs import TABS, page
from console.core.permissions import Role, require_role
from console.deployments import services as deployments
from console.engines import selectors as engines
from console.repository import services as repository
from serving.config.protobuf import pb


@require_GET
@require_role(Role.VIEWER)
def versions(request: HttpRequest, name: str) -> HttpResponse:
    return _show(request, name, None, 200)


def _show(request: HttpRequest, name: str, form: PolicyForm | None, status: int) -> HttpResponse:
    context = page(name, "versions")
    policy = _policy(context["header"])
    context |= {
        "form": form or PolicyForm(initial=policies.initial(policy)),
        "is_policy_open": form is not None,
        "policy_words": policies.in_words(policy),
        "rows": rows_of(context["header"]),
        "can_build": engines.can_build(name),
    }
    return render(request, "catalog/versions.html", context, status=status)


@require_GET
@require_role(Role.VIEWER)
def live_parts(request: HttpRequest, name: str) -> HttpResponse:
    """The parts of the tab `?tab=` that change by themselves, the header first."""
    context = page(name, _tab(request.GET.get("tab", "")))
    if context["tab"] == "versions":
        context["rows"] = rows_of(context["header"])
    elif context["tab"] == "model":
        context["steps"] = steps_of(context["header"])
        context["users"] = users_of(context["family"])
    return render(request, "catalog/_live.html", context)


def _tab(wanted: str) -> str:
    return wanted if wanted in dict(TABS) else "model"


def rows_of(header: selectors.ModelHeader) -> list[selectors.VersionRow]:
    available = list(header.directory.versions) if header.directory else []
    return selectors.version_rows(header, policies.selected(_policy(header), available))


def _policy(header: selectors.ModelHeader) -> pb.ModelVersionPolicy:
    """Of the config on disk; Triton's default where there is none or it does not parse."""
    config = saved_config(header.directory) if header.directory else None
    return config.version_policy if config is not None else pb.ModelVersionPolicy()


@require_POST
@require_role(Role.OPERATOR)
def change_policy(request: HttpRequest, name: str) -> HttpResponse:
    form = PolicyForm(request.POST)
    if not form.is_valid():
        return _show(request, name, form, 422)
    must_load = request.POST.get("action") == "save_load"
    done = "The version policy was saved" + (" and is being applied." if must_load else ".")
    attempt(
        request,
        lambda: repository.set_version_policy(
            actor=request.user, model=name, policy=form.policy, load=must_load
        ),
        done,
    )
    return redirect("catalog:versions", name)


@require_POST
@require_role(Role.OPERATOR)
def load_version(request: HttpRequest, name: str, version: int) -> HttpResponse:
    """Serve this version beside those that are served now."""
    header = page(name, "versions")["header"]
    served = {int(item) for item in header.row.observed.served_versions if item.isdigit()}
    attempt(
        request,
        lambda: deployments.load_model(
            actor=request.user, model=name, versions=sorted(served | {version})
        ),
        f"Version {version} of {name} is being loaded.",
    )
    return redirect("catalog:versions", name)


@require_POST
@require_role(Role.OPERATOR)
def unload_version(request: HttpRequest, name: str, version: int) -> HttpResponse:
    attempt(
        request,
        lambda: deployments.unload_model(actor=request.user, model=name, version=version),
        f"Version {version} of {name} is being unloaded. Waiting requests are finished first.",
    )
    return redirect("catalog:versions", name)


@require_POST
@require_role(Role.ADMIN)
def delete_version(request: HttpRequest, name: str, version: int) -> HttpResponse:
    if request.POST.get(f"confirm-{version}", "").strip() != name:
        messages.error(request, f"Nothing was deleted: type the model's name, {name}, to confirm.")
        return redirect("catalog:versions", name)
    attempt(
        request,
        lambda: repository.delete_version(actor=request.user, model=name, version=version),
        f"Version {version} of {name} was moved to the trash.",
    )
    return redirect("catalog:versions", name)
