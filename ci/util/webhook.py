"""POST JSON to a webhook. Its address is a secret: messages have only its host."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from ci.errors import InfrastructureError
from ci.util.text import hide_values, mask_credentials, root_cause

RETRIES = 3
BACKOFF_S = 2.0  # 0, 4 and 8 s between the tries: a server that restarts is back after some seconds
BUSY = (429, 500, 502, 503, 504)  # the statuses of a server that may take a later try
TIMEOUT_S = 5.0  # to connect, and between two bytes; chat services answer in less than a second
LONGEST_S = 45.0  # of all tries, for a server that sends a byte now and then; else they take 32 s
LARGEST_ANSWER = 1 << 16  # bytes; answers are one line
LONGEST_FAULT = 300  # characters: an answer has a code and a sentence

Body = dict[str, Any]
_SLACK_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


def _feishu(text: str, _: Body) -> Body:
    # `<at user_id="all">` would notify a whole group, and names of files can contain it.
    return {"msg_type": "text", "content": {"text": text.replace("<at", "< at")}}


# Slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
# Feishu: https://open.feishu.cn/document/client-docs/bot-v3/add-custom-bot
# DingTalk: https://open.dingtalk.com/document/robots/custom-robot-access
FORMS: Mapping[str, Callable[[str, Body], Body]] = {
    "json": lambda _, data: data,
    "slack": lambda text, _: {"text": text.translate(_SLACK_ESCAPES)},
    "feishu": _feishu,
    "dingtalk": lambda text, _: {"msgtype": "text", "text": {"content": text}},
}
CODED = ("feishu", "dingtalk")  # they refuse with status 200, and a code other than 0
_HOSTS = {
    "hooks.slack.com": "slack",
    "open.feishu.cn": "feishu",
    "open.larksuite.com": "feishu",
    "oapi.dingtalk.com": "dingtalk",
}


def split_form(address: str) -> tuple[str, str] | None:
    """Split ``slack+https://host/path`` into form and URL; the host implies the form, too.

    ``None`` if it is no such address.
    """
    form, plus, rest = address.partition("+")
    url = rest if plus and form in FORMS else address
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port  # a wrong port raises ValueError here
    except ValueError:
        return None
    is_plain = url.isascii() and url.isprintable() and " " not in url
    if parts.scheme not in ("http", "https") or not host or not is_plain:
        return None
    return (form if url is rest else _HOSTS.get(host, "json")), url


def post_json(url: str, form: str, body: Mapping[str, Any]) -> None:
    """POST ``body`` as JSON; try again after faults of the network or the server.

    Raises ``InfrastructureError`` if no try succeeds, or the receiver refuses.
    """
    faults: list[str] = []
    # In a thread, since neither the search for a host nor a slow answer has a limit of time.
    thread = Thread(target=lambda: faults.append(_post(url, form, body)), daemon=True)
    thread.start()
    thread.join(LONGEST_S)
    fault = faults[0] if faults else f"no answer within {LONGEST_S:g} s"
    if fault:
        hide_values(_secrets(url))
        message = f"--notify: {urlsplit(url).hostname}: {mask_credentials(fault)[:LONGEST_FAULT]}"
        raise InfrastructureError(message, remedy="Check the address of --notify.")


def _post(url: str, form: str, body: Mapping[str, Any]) -> str:
    """Return the fault; empty for none."""
    import requests  # 0.1 s, for alarms only
    from requests.adapters import HTTPAdapter
    from urllib3.exceptions import HTTPError
    from urllib3.util import Retry

    retry = Retry(
        total=RETRIES,
        backoff_factor=BACKOFF_S,
        status_forcelist=BUSY,
        allowed_methods=("POST",),
        raise_on_status=False,
    )
    try:
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=retry))
            # A redirect would be followed with a GET, without the body.
            answer = session.post(
                url, json=body, timeout=TIMEOUT_S, allow_redirects=False, stream=True
            )
            coded = form in CODED and answer.ok
            content = answer.raw.read(LARGEST_ANSWER, decode_content=True) if coded else b""
    except (OSError, ValueError, HTTPError) as error:
        return f"cannot be reached: {root_cause(error)}"
    if answer.status_code // 100 != 2:
        return f"got status {answer.status_code}, expected 200"
    return _refusal(content)


def _refusal(content: bytes) -> str:
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(parsed, dict) or not (parsed.get("code") or parsed.get("errcode")):
        return ""
    return f"refused: {parsed!a}"


def _secrets(url: str) -> Iterator[str]:
    """The parts of an address that an error or an answer may quote."""
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    yield from (url, path, parts.password or "")
    yield from (value for _, value in parse_qsl(parts.query))
    yield from map(unquote, parts.path.split("/"))
