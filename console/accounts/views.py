"""Pages about people: login, own account, users (admins), API tokens."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth import update_session_auth_hash
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm
from django.contrib.auth.views import LoginView
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.accounts import services
from console.accounts.forms import LoginForm, NewUserForm, RoleForm, ThemeForm, TokenForm
from console.accounts.models import ApiToken, User
from console.core import audit
from console.core.permissions import require_role
from console.core.roles import Role, role_of


class Login(LoginView):
    template_name = "accounts/login.html"
    authentication_form = LoginForm
    redirect_authenticated_user = True

    def form_valid(self, form: AuthenticationForm) -> HttpResponse:
        answer = super().form_valid(form)
        audit.record(self.request.user, "log in", "", {"from": self.request.META["REMOTE_ADDR"]})
        return answer


def _me(request: HttpRequest) -> User:
    return cast(User, request.user)


@require_GET
def account(request: HttpRequest) -> HttpResponse:
    return _account(request, ThemeForm(initial={"theme": _me(request).theme}))


@require_POST
def change_theme(request: HttpRequest) -> HttpResponse:
    form = ThemeForm(request.POST)
    if not form.is_valid():
        return _account(request, form, status=400)
    services.set_theme(user=_me(request), theme=form.cleaned_data["theme"])
    return redirect("accounts:account")


@require_POST
def change_password(request: HttpRequest) -> HttpResponse:
    form = PasswordChangeForm(_me(request), request.POST)
    if not form.is_valid():
        theme = ThemeForm(initial={"theme": _me(request).theme})
        return _account(request, theme, form, status=400)
    user = form.save()
    # The other sessions of this person end; this one goes on.
    update_session_auth_hash(request, user)
    audit.record(user, "change password", user.username)
    messages.success(request, "Password changed. Your other sessions are logged out.")
    return redirect("accounts:account")


def _account(
    request: HttpRequest,
    theme_form: ThemeForm,
    password_form: PasswordChangeForm | None = None,
    status: int = 200,
) -> HttpResponse:
    password_form = password_form or PasswordChangeForm(_me(request))
    # The page is not about the password alone: it must not take the focus.
    password_form.fields["old_password"].widget.attrs.pop("autofocus", None)
    context = {"theme_form": theme_form, "password_form": password_form}
    return render(request, "accounts/account.html", context, status=status)


@require_role(Role.ADMIN)
@require_http_methods(["GET", "POST"])
def users(request: HttpRequest) -> HttpResponse:
    form = NewUserForm(request.POST if request.method == "POST" else None)
    if request.method == "POST" and form.is_valid():
        services.create_user(
            actor=request.user,
            name=form.cleaned_data["username"],
            password=form.cleaned_data["password"],
            role=form.cleaned_data["role"],
        )
        messages.success(request, f"{form.cleaned_data['username']} can log in now.")
        return redirect("accounts:users")
    people = User.objects.order_by("-is_active", "username").prefetch_related("groups")
    rows = [{"user": person, "role": role_of(person)} for person in people]
    context = {"rows": rows, "form": form, "roles": Role.choices}
    return render(request, "accounts/users.html", context, status=400 if form.errors else 200)


def _user(user_id: int) -> User:
    user = User.objects.filter(pk=user_id).first()
    if user is None:
        raise Http404(f"There is no user {user_id}.")
    return user


@require_role(Role.ADMIN)
@require_POST
def change_role(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(user_id)
    form = RoleForm(request.POST)
    if not form.is_valid():
        messages.error(request, "There is no such role: choose viewer, operator or admin.")
        return redirect("accounts:users")
    try:
        services.change_role(actor=request.user, user=user, role=form.cleaned_data["role"] or None)
        held = role_of(user)
        text = f"is {held.label.lower()} now" if held else "has no role now"
        messages.success(request, f"{user.username} {text}.")
    except services.RefusedError as error:
        messages.error(request, str(error))
    return redirect("accounts:users")


@require_role(Role.ADMIN)
@require_POST
def set_active(request: HttpRequest, user_id: int) -> HttpResponse:
    user = _user(user_id)
    is_active = request.POST.get("is_active") == "1"
    try:
        services.set_active(actor=request.user, user=user, is_active=is_active)
        word = "active again" if is_active else "deactivated"
        messages.success(request, f"{user.username} is {word}.")
    except services.RefusedError as error:
        messages.error(request, str(error))
    return redirect("accounts:users")


@never_cache
@require_role(Role.VIEWER)
@require_http_methods(["GET", "POST"])
def tokens(request: HttpRequest) -> HttpResponse:
    """A new token is in the answer to its POST and nowhere else: no redirect, nothing kept."""
    me = _me(request)
    role = role_of(me) or Role.VIEWER
    form = TokenForm(request.POST if request.method == "POST" else None, role=role)
    created = None
    status = 200
    if request.method == "POST":
        if form.is_valid():
            created = services.create_token(actor=me, **form.cleaned_data)
            form = TokenForm(role=role)
            status = 201
        else:
            status = 400
    rows = ApiToken.objects.select_related("user")
    if role is not Role.ADMIN:
        rows = rows.filter(user=me)
    context = {
        "rows": rows,
        "form": form,
        "created": created[0] if created else None,
        "secret": created[1] if created else "",
    }
    return render(request, "accounts/tokens.html", context, status=status)


@require_role(Role.VIEWER)
@require_POST
def revoke_token(request: HttpRequest, token_key: str) -> HttpResponse:
    me = _me(request)
    rows = ApiToken.objects.all()
    if role_of(me) is not Role.ADMIN:
        rows = rows.filter(user=me)
    token = rows.filter(token_key=token_key).first()
    if token is None:
        raise Http404("There is no such token of yours: it was removed meanwhile.")
    services.revoke_token(actor=me, token=token)
    messages.success(request, f"Token {token.name} is revoked; within seconds it opens nothing.")
    return redirect("accounts:tokens")
