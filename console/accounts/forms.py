"""Forms of login, account, users and tokens; each field's mistake is explained beside it."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.password_validation import (
    password_validators_help_texts,
    validate_password,
)

from console.accounts import throttle
from console.accounts.models import Theme, User
from console.core.roles import Role, Scope

EXPIRY_DAYS = [("30", "30 days"), ("90", "90 days"), ("365", "1 year"), ("", "Never")]


class LoginForm(AuthenticationForm):
    error_messages = {
        "invalid_login": "Name or password is wrong. Both are case-sensitive.",
        "inactive": "This account is deactivated. An admin can activate it under Users.",
        "blocked": "Too many wrong passwords. Wait five minutes and try again.",
    }

    def clean(self) -> dict[str, Any]:
        name = str(self.cleaned_data.get("username") or "")
        assert self.request is not None
        if throttle.is_blocked(self.request, name):
            raise forms.ValidationError(self.error_messages["blocked"], code="blocked")
        try:
            data: dict[str, Any] = super().clean()
        except forms.ValidationError:
            throttle.note_failure(self.request, name)
            raise
        throttle.forget_failures(self.request, name)
        return data


class ThemeForm(forms.Form):
    theme = forms.ChoiceField(choices=Theme.choices, widget=forms.RadioSelect)


class NewUserForm(forms.ModelForm):  # type: ignore[type-arg]
    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)
    password = forms.CharField(
        label="First password",
        widget=forms.PasswordInput(attrs={"autocomplete": "new-password"}),
        help_text=" ".join(password_validators_help_texts()),
        strip=False,
    )

    class Meta:
        model = User
        fields = ["username"]
        labels = {"username": "Name"}
        help_texts = {"username": "Letters, digits and @ . + - _"}

    field_order = ["username", "role", "password"]

    def clean_username(self) -> str:
        """Names that differ in case alone would be taken for one another in history and audit."""
        name = str(self.cleaned_data["username"])
        other = User.objects.filter(username__iexact=name).exclude(username=name).first()
        if other is not None:
            raise forms.ValidationError(
                f"There is a user {other.username} already: choose a name that differs in more "
                "than upper and lower case."
            )
        return name

    def clean_password(self) -> str:
        password = str(self.cleaned_data["password"])
        validate_password(password, User(username=self.cleaned_data.get("username", "")))
        return password


class RoleForm(forms.Form):
    role = forms.ChoiceField(choices=[("", "No role"), *Role.choices], required=False)


class TokenForm(forms.Form):
    name = forms.CharField(
        max_length=60, help_text="What will use it, for example the name of a job or a machine."
    )
    scope = forms.ChoiceField(choices=Scope.choices)
    days = forms.ChoiceField(choices=EXPIRY_DAYS, initial="90", required=False, label="Expires in")

    def __init__(self, *args: Any, role: Role, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        scope = self.fields["scope"]
        assert isinstance(scope, forms.ChoiceField)
        if role is Role.VIEWER:
            scope.choices = [(Scope.READ.value, Scope.READ.label)]
            scope.help_text = "Your role is viewer: your tokens can read."
        else:
            scope.help_text = (
                "Read: the REST API's answers. Infer: also inference through /v2. "
                "Deploy: also all you may do yourself."
            )

    def clean_days(self) -> int | None:
        text = self.cleaned_data["days"]
        return int(text) if text else None
