"""Pages about people."""

from __future__ import annotations

from django.contrib.auth.views import LogoutView
from django.urls import path

from console.accounts import views

app_name = "accounts"

urlpatterns = [
    path("login/", views.Login.as_view(), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    path("account/", views.account, name="account"),
    path("account/theme/", views.change_theme, name="theme"),
    path("account/password/", views.change_password, name="password"),
    path("settings/users/", views.users, name="users"),
    path("settings/users/<int:user_id>/role/", views.change_role, name="role"),
    path("settings/users/<int:user_id>/active/", views.set_active, name="active"),
    path("settings/tokens/", views.tokens, name="tokens"),
    path("settings/tokens/<str:token_key>/revoke/", views.revoke_token, name="revoke"),
]
