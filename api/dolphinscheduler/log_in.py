"""Log-ins with a password, and log-outs."""

from __future__ import annotations

from typing import Any, Final

from fastapi.responses import JSONResponse

from api.dolphinscheduler.call import Call
from api.dolphinscheduler.envelope import RefusedError, Status, answer
from api.dolphinscheduler.table import Row
from api.policy import Who
from operations import log_ins

SESSION: Final = "sessionId"
"""The cookie, and the header, that a session is sent in."""


def log_in(call: Call) -> JSONResponse:
    """Begin a session."""
    name, password = call.needed("userName"), call.needed("userPassword")
    text = log_ins.log_in(call.session.engine, name, password, address=call.address)
    if text is None:
        raise RefusedError(Status.WRONG_PASSWORD)
    data = {SESSION: text, "securityConfigType": "PASSWORD"}
    made = JSONResponse(answer(data, message="login success"))
    # With `strict`, browsers do not send the cookie from pages of other sites. `secure` depends on
    # HTTPS because programs on loopback, unlike browsers, return a secure cookie only over HTTPS.
    made.set_cookie(
        SESSION,
        text,
        httponly=True,
        samesite="strict",
        path="/dolphinscheduler",
        secure=call.is_encrypted,
    )
    return made


def log_out(call: Call) -> Any:
    """End the session of the call; a token is not ended by this."""
    if call.session_text is not None:
        log_ins.log_out(call.session.engine, call.session_text)
    made = JSONResponse(answer(None))
    made.delete_cookie(SESSION, path="/dolphinscheduler")
    return made


ROWS: Final[tuple[Row, ...]] = (
    Row(
        serve=log_in,
        takes=Who.ANYONE,
        classic=("POST", "login"),
        later=("POST", "login"),
        refused=Status.LOGIN_FAILED,
    ),
    Row(serve=log_out, takes=Who.USER, classic=("POST", "signOut"), later=("POST", "signOut")),
)
