"""Log-ins at an OpenID provider: the authorization code flow with PKCE, and the checks of it."""
