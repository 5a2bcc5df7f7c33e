"""Which values of an environment are secrets, and that a masked text contains none."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import time

import pytest
from hypothesis import given, strategies as st

from shellsession.policy.secrets import SHORTEST, Secrets

SECRET_NAMES = """
    TOKEN GITHUB_TOKEN github_token githubToken GITHUBTOKEN CI_TOKENS TOKEN_2 TOKEN2 CLIENT_SECRET SECRETS
    AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN PGPASSWORD DB_PASSWD BORG_PASSPHRASE DB_PASS SSHPASS
    MYSQL_PWD CREDENTIAL GOOGLE_CREDENTIALS OPENAI_API_KEY OPENAI_API_KEYS API_KEY_1 MYAPIKEY PRIVATE_KEY_PEM SECRETKEY
    SESSION_KEY DEPLOY_KEY DEPLOY_KEYS REDISCLI_AUTH npm_config__auth HTTP_AUTHORIZATION AUTH_COOKIES COOKIE GITHUB_PAT
    GITHUB_OAUTH
"""
OTHER_NAMES = """
    PATH PWD OLDPWD HOME KEYBOARD MONKEY MONKEYS KEY_REPEAT TURKEY GIT_AUTHOR_NAME XAUTHORITY SECRETARY PASSWORDLESS
    BYPASS COMPASS TOKENIZERS_PARALLELISM XDG_SESSION_ID INFOPATH DB_PATH PATTERN COOKIECUTTER
"""


@pytest.mark.parametrize("name", SECRET_NAMES.split())
def test_the_name_tells_a_secret(name: str) -> None:
    assert Secrets({name: "hunter-2"}).mask("echo hunter-2!") == "echo ***!"


@pytest.mark.parametrize("name", OTHER_NAMES.split())
def test_other_names_tell_none(name: str) -> None:
    assert Secrets({name: "hunter-2"}).mask("echo hunter-2!") == "echo hunter-2!"


@pytest.mark.parametrize(
    ("value", "password"),
    [
        ("postgres://user:p4ssword@host/base", "p4ssword"),
        ("redis://:p4ssword@host:6379", "p4ssword"),
        ("smtp://me@home.org:p4ssword@host", "p4ssword"),
        ("http://user:p4ss@word@host", "p4ss@word"),
        ("http://user:p4ss%40w%c3%b6rd@host", "p4ss%40w%c3%b6rd"),
        ("http://user:p4ss%40w%c3%b6rd@host", "p4ss@wörd"),
        ("http://user:p4ss%ff%C3word@host", "p4ss\udcff\udcc3word"),
        ("http://one http://user:p4ssword@host/x http://user:0therword@host", "0therword"),
    ],
)
def test_a_password_in_a_url_is_a_secret(value: str, password: str) -> None:
    assert Secrets({"ANY": value}).mask(f"log in with {password}") == "log in with ***"


@pytest.mark.parametrize(
    "setting",
    [
        "AUTH_MODE=production",
        "MAX_TOKENS=100000",
        "COOKIE_DOMAIN=example.com",
        "POSTGRES_PASSWORD_FILE=/run/secrets/pg",
        "SSH_AUTH_SOCK=/tmp/ssh-XXXXXX/agent.1",
        "TOKEN_URL=https://idp.corp/oauth2/token",
        "AUTH_SERVICE_HOST=10.96.0.12",
        "AUTH_SERVICE_PORT=tcp://10.96.0.12:80",
        "SECRET_NAME=prod/pg-credentials",
        "token_ttl=3600000",
    ],
)
def test_a_setting_is_none_where_its_value_is_what_the_name_says(setting: str) -> None:
    name, _, value = setting.partition("=")
    assert Secrets({name: value}).mask(f"a {value} b") == f"a {value} b"


@pytest.mark.parametrize(
    ("setting", "secret"),
    [
        ("PASSWORD_FILE=hunter-2", "hunter-2"),
        ('GOOGLE_CREDENTIALS_FILE={"key": "a/b"}', '{"key": "a/b"}'),
        ("PRIVATE_KEY_PATH=a/b\nhunter-2", "hunter-2"),
        ("AUTH_URL=https://user:p4ssword@host/x", "p4ssword"),
        ("AUTH_URL=https://p4ssword@host/x", "https://p4ssword@host/x"),
        ("AUTH_URL=https://host/x?token=hunter-2", "https://host/x?token=hunter-2"),
        ("SECRET_URL=https://host/hooks/T0AB12CD34EF56GH78IJ", "https://host/hooks/T0AB12CD34EF56GH78IJ"),
        ("TOKEN_URL=hunter-2", "hunter-2"),
        ("AUTH_HOST=me:p4ssword@host", "me:p4ssword@host"),
        ("AUTH_TYPE=Basic aHVudGVyLTI=", "Basic aHVudGVyLTI="),
        ("CI_TOKENS=1234567a", "1234567a"),
        ("CI_TOKEN=1234567", "1234567"),
        ("TOKEN=x_FILE=/a/b", "x_FILE=/a/b"),
        ("AUTH_MODE_TOKEN=production", "production"),
    ],
)
def test_a_value_that_may_be_more_than_its_name_says_is_a_secret(setting: str, secret: str) -> None:
    name, _, value = setting.partition("=")
    assert secret not in Secrets({name: value}).mask(f"a {value} b, {secret}")


@pytest.mark.parametrize("value", ["http://host:8080/p4ssword@x", "user:p4ssword@host", "http://p4ssword@host"])
def test_what_is_no_password_is_none(value: str) -> None:
    assert Secrets({"ANY": value}).mask(value) == value


@pytest.mark.parametrize(
    ("environment", "text", "masked"),
    [
        ({"A_KEY": "12345", "B_KEY": "123456"}, "12345 123456", "12345 ***"),
        ({"A_KEY": "", "B_KEY": " " * 9}, "a" + " " * 20, "a" + " " * 20),
        ({"A_KEY": "abcdef", "B_KEY": "abcdefgh"}, "abcdefgh abcdef", "*** ***"),
        ({"A_KEY": "abcdef", "B_KEY": "defghi"}, "-abcdefghi-defghi-", "-***-***-"),
        ({"A_KEY": "abcdefghij", "B_KEY": "cdefgh"}, "abcdefghij", "***"),
        ({"A_KEY": "abcabc"}, "abcabcabc", "***"),
        ({"A_KEY": "a.c(d+"}, "abc(dd a.c(d+a.c(d+", "abc(dd ******"),
        ({"A_KEY": "BEGIN-\n  line-one\r\nfour\n"}, "line-one, four, BEGIN-", "***, four, ***"),
        ({"A_KEY": "one-two\nthree-four"}, "one-two\nthree-four", "***"),
        ({"A_KEY": "\udcff\udcfe-öäü"}, "echo \udcff\udcfe-öäü", "echo ***"),
    ],
)
def test_what_is_masked(environment: dict[str, str], text: str, masked: str) -> None:
    assert Secrets(environment).mask(text) == masked


VALUE = [
    *(
        "it's me",
        "a\\b'c d",
        "tab\there",
        "\x1b\x01\x7f\\'\"",
        "1st line's\n2nd\\line",
        "öä'ü\n$",
        "plain-é",
        "#~:~=~~#",
    ),
    *('a$b`c"d\\e!f', 'a$\tb`"c', "".join(map(chr, range(32, 127))), "\udcff\udcfe$ é'x", "/\b\f€\U0001f600+"),
]


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("value", VALUE)
def test_quoted_for_a_shell_it_is_masked_too(value: str, locale: str) -> None:
    program = r'printf "%q\0" "$X"; printf "%s\0" "${X@Q}"; declare -p X'
    listed = subprocess.run(
        ["bash", "-c", program], capture_output=True, env={"LC_ALL": locale, "X": value}, check=True
    ).stdout.decode("utf-8", "surrogateescape")
    for spelling in (value, shlex.quote(value), "'" + value.replace("'", "'\\''") + "'", *listed.split("\0")):
        masked = Secrets({"A_TOKEN": value}).mask(spelling)
        assert re.fullmatch(r"(?:declare -x X=)?\\?\$?['\"]?\*\*\*['\"]?\n?", masked), (spelling, masked)


@pytest.mark.parametrize("value", VALUE)
@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_as_json_it_is_masked_too(value: str, ensure_ascii: bool) -> None:
    text = json.dumps({"X": value}, ensure_ascii=ensure_ascii)
    assert Secrets({"A_TOKEN": value}).mask(text) == '{"X": "***"}'


VALUES = st.lists(
    st.text("ab'\\\n ", min_size=SHORTEST, max_size=9).filter(lambda text: not text.isspace()), max_size=4
)
TEXTS = st.lists(st.text("ab'\\\n ", max_size=12), max_size=5).map("".join)


@given(VALUES, st.data())
def test_no_secret_survives(values: list[str], data: st.DataObject) -> None:
    secrets = Secrets({f"{number}_TOKEN": value for number, value in enumerate(values)})
    quoted = [shlex.quote(value) for value in values]
    text = "".join(data.draw(st.lists(st.one_of(TEXTS, *map(st.just, values + quoted)), max_size=6)))
    masked = secrets.mask(text)
    assert not [value for value in values if value in masked]
    assert all(masked[:limit] == secrets.mask(text, limit) for limit in range(len(masked) + 3))


@given(st.lists(st.text("abc", min_size=SHORTEST)), st.text("abc\n'", max_size=5), st.text("xyz*'\n\\\udcff é"))
def test_text_without_secrets_stays_as_it_is(values: list[str], short: str, text: str) -> None:
    environment = {f"{number}_TOKEN": value for number, value in enumerate(values)}
    assert Secrets({**environment, "A_TOKEN": short, "ANY": text}).mask(text) == text


@given(st.lists(st.text("ab", min_size=SHORTEST, max_size=20), max_size=3), st.data())
def test_what_is_masked_is_each_run_of_occurrences_that_overlap(values: list[str], data: st.DataObject) -> None:
    pieces = data.draw(st.lists(st.one_of(st.text("ab", max_size=9), *map(st.just, values)), max_size=9))
    text = "".join(pieces) * data.draw(st.integers(1, 3))
    masked, shown = "", 0
    for start in range(len(text)):
        if (size := max((len(one) for one in values if text.startswith(one, start)), default=0)) == 0:
            masked += text[start] if start >= shown else ""
            continue
        masked += "***" if start >= shown else ""
        shown = max(shown, start + size)
    secrets = Secrets({f"{number}_TOKEN": value for number, value in enumerate(values)})
    assert secrets.mask(text) == masked


def _fibonacci(size: int) -> str:
    """It repeats itself in every length, and never for long."""
    text, longer = "a", "ab"
    while len(longer) < size:
        text, longer = longer, longer + text
    return longer[:size]


HALF = 50_000
REPEATING = ["x" * 6, "x" * 2 * HALF, "ab" * HALF, "a" * HALF + "b" + "a" * HALF, _fibonacci(2 * HALF)]


@pytest.mark.parametrize("limit", [None, 4096])
@pytest.mark.parametrize("secret", REPEATING, ids=["short", "one letter", "two letters", "middle", "fibonacci"])
def test_a_secret_that_repeats_itself_takes_no_longer(secret: str, limit: int | None) -> None:
    secrets = Secrets({"A_TOKEN": secret})
    began = time.process_time()
    for text in ("x" * (1 << 20), "a" * (1 << 20), secret * (1 + (1 << 20) // len(secret))):
        masked = secrets.mask(text + "-end", limit)
        assert secret not in masked
        assert limit is not None or masked.endswith("-end")
    assert time.process_time() - began < 5  # takes 0.05 s; what looks at each occurrence takes minutes


def test_of_a_long_text_no_more_is_read_than_is_shown() -> None:
    secrets = Secrets({"A_TOKEN": "hunter-2", "B_TOKEN": "x" * 9000})
    text = "echo hunter-2;" * (1 << 20)
    began = time.process_time()
    for _ in range(100):
        assert secrets.mask(text, 4096) == ("echo ***;" * 4096)[:4096]
    assert time.process_time() - began < 5  # takes 0.1 s; where all of it is read each time, a minute


def test_of_many_secrets_each_is_found() -> None:
    values = [f"{number:x}-{number * 7919 % 1009:05}-value" for number in range(2000)]
    secrets = Secrets({"A_TOKEN": "\n".join(values)}, named=["pi"])
    text = "".join(f"[{value}]" for value in values)
    assert secrets.mask(f"pi {text} 7-07-value") == "*** " + "[***]" * 2000 + " 7-07-value"
    assert Secrets({"A_TOKEN": "\n".join(values)}).mask(text, 9) == "[***][***"


LINES = st.text("ab'\\\"$~=: é\t", min_size=SHORTEST, max_size=9).filter(lambda line: len(line.strip()) >= SHORTEST)


@given(st.lists(LINES, min_size=1, max_size=4))
def test_each_line_of_a_secret_is_one_in_every_spelling(lines: list[str]) -> None:
    whole = Secrets({"A_TOKEN": "\n".join(lines)})
    for line in map(str.strip, lines):
        for spelling in (line, shlex.quote(line), json.dumps(line), json.dumps(line, ensure_ascii=False)):
            assert whole.mask(spelling) == Secrets({"A_TOKEN": line}).mask(spelling)
            assert "***" in whole.mask(spelling)


def test_a_secret_of_thousands_of_lines_is_known_at_once() -> None:
    began = time.process_time()
    for salt in range(3):
        value = json.dumps({f"{salt}-{number}": f'value "{number}" $x' for number in range(3000)}, indent=2)
        assert Secrets({"A_CREDENTIALS": value}).mask(f"[{value}]", 9) == "[***]"
    assert time.process_time() - began < 6  # takes 0.7 s; with one regular expression of them all, 15 s
