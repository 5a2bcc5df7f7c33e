"""Which rules are proposed for a command, and what they cover."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from shellsession import TTY, InvalidRequest, Policy, Session
from shellsession.models import Request
from shellsession.policy.approval import Answerer, Question, Rule
from shellsession.policy.commands import analyze
from shellsession.policy.proposals import covered, plain, proposed

_ME = Answerer(1, 0, "me")
_COMMON = [Rule((name,), is_prefix) for name in ("ls", "git", "cat", "echo") for is_prefix in (False, True)]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("ls", ["ls"]),
        ("/bin/ls -l", ["/bin/ls -l"]),
        ("git push origin main", ["git push origin main"]),
        ("git commit -m 'a * b'", ["git commit -m a * b"]),
        ("grep -r \"two words\" 'src'", ["grep -r two words src"]),
        ("pytest -q tests/a.py", ["pytest -q tests/a.py"]),
        ("cd /srv/app && git status", ["cd /srv/app", "git status"]),
        ("git log | head -3; ls", ["git log", "head -3", "ls"]),
        ("cp a b\nrm a\n", ["cp a b", "rm a"]),
        ("ls x 2>/dev/null", ["ls x"]),
        ("ls x >/dev/null 2>&1 || true", ["ls x", "true"]),
        ("ls; ls", ["ls"]),
    ],
)
def test_proposal_for_plain_commands_is_their_words(command: str, rules: list[str]) -> None:
    assert [" ".join(words) for words in proposed(command)] == rules
    assert covered(command, [*map(Rule, proposed(command))]) == tuple(map(Rule, proposed(command)))


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git -c core.pager=x log",
            "git --exec-path=x log",
            "git push --receive-pack=x y",
            "git st",
            "git",
            "git bisect",
        ),
        *("git push --rece=x y", "git diff --ext", "git show --out=f", "git fetch --upload-p=x", "sort --comp=sh f"),
        *("rg --pre sh x", "rg --pr=sh x", "split --filter=sh f", "split --f sh f", "zip -TT sh a b", "zip --unz sh a"),
        *(
            "shellsession run -s b -- ls",
            "wget --use-ask=sh h",
            "wget -e use_askpass=sh h",
            "wget -qe use_askpass=sh h",
        ),
        *("test -v 'a[$(ls)]'", "'[' -v 'a[$(ls)]' ']'", "wait -n -p 'a[$(ls)]'", "jobs -x ls"),
        *("ls 12>/dev/null", "ls 3>/dev/null", "12>/dev/null ls", "ip netns exec x ls"),
        *("at now", "batch", "crontab f", "sqlite3 f .shell", "psql -c x", "less f", "man -P sh ls", "nc -e sh h 1"),
        *("find . -exec rm {} +", "find . -name x", "xargs ls", "env X=1 ls", "sudo ls", "bash -c ls", "sh x.sh"),
        *("make test", "npm run test", "npx x", "python -c 'x'", "python3.12 x.py", "node -e x", "awk 'x' f"),
        *(
            "nohup ls",
            "timeout 5 ls",
            "ssh host ls",
            "docker run x",
            "watch ls",
            "time ls",
            "eval ls",
            ". x",
            "exec ls",
        ),
        *("alias ls=x", "export X=1", "trap x EXIT", "source x", "command ls", "enable -f x y", "ulimit -x 5"),
        *("/srv/app/tool go", "/tmp/ls", "/usr/../tmp/ls", "//usr/bin/ls"),
        *("X=1 ls", "PATH=/tmp ls", "./x.sh", "bin/x", "$X", "echo $X", 'echo "$X"', "echo `ls`", "echo $(ls)"),
        *("ls *", "ls a?", "ls [ab]", "ls {a,b}", "ls ~", "echo a\\ b", "echo $'a'", "cat <(ls)", 'echo "a!b"'),
        *("echo x > f", "cat < f", "cat <<E\nx\nE", "cat <<<x", "ls &", "ls |& cat", "ls 2>f", "ls >/dev/nullx"),
        *("f() { ls; }", "if true; then ls; fi", "while :; do ls; done", "{ ls; }", "( ls )", "! ls", "[[ a ]]"),
        *(
            "",
            " ",
            ";",
            "ls &&",
            "&& ls",
            "ls;; ls",
            "ls;&>/dev/null",
            "ls # x",
            "'a",
            "echo 'a\nb'",
            "echo 'a\x1b[2Jb'",
            "ls && make",
        ),
    ],
)
def test_proposal_for_what_is_not_plain_or_starts_others_is_none(command: str) -> None:
    assert proposed(command) == () == covered(command, _COMMON)


@pytest.mark.parametrize(
    "command",
    ["rm -rf build /etc", "rm -rf", "rm -fr build", "rm -rf build && ls", "rm -rf build > x", "X=1 rm -rf build"],
)
def test_rule_covers_its_exact_words_only(command: str) -> None:
    rule = Rule(("rm", "-rf", "build"))
    assert covered("rm  -rf 'build'", [rule]) == (rule,)
    assert covered(command, [rule]) == ()


@pytest.mark.parametrize(
    ("command", "is_covered"),
    [
        *(
            (command, True)
            for command in ("git push", "git push origin", "git  'push' -f && git push", "git push; ls x")
        ),
        *((command, False) for command in ("git pull", "git pusher", "git -C x push", "git 'push x'", "sudo git push")),
        *(
            (f"git push {more}", False)
            for more in ("; rm x", "$(rm x)", "> x", "< x", "| sh", "& rm x", "\nrm x", "`rm`")
        ),
        *(
            (f"git push {more}", False)
            for more in ("--receive-pack=x", "|& cat", "&& env rm x", "x && X=1 ls", "{a,b}")
        ),
        *(
            (command, False)
            for command in ("X=1 git push", "./git push", "f() { git push; }", "alias git=rm\ngit push")
        ),
    ],
)
def test_prefix_covers_plain_commands_that_begin_with_its_words(command: str, is_covered: bool) -> None:
    rules = [Rule(("git", "push"), is_prefix=True), Rule(("ls", "x"))]
    assert bool(covered(command, rules)) == is_covered


@given(
    st.lists(
        st.sampled_from(
            ["ls", "a1", "'b c'", '"d"', "&&", "||", ";", "|", "\n", " ", "2>&1", ">/dev/null", "-x", "e=f", "%"]
        ),
        max_size=12,
    ).map(" ".join)
)
def test_plain_text_has_the_words_that_the_grammar_finds(text: str) -> None:
    commands = plain(text)
    if commands is not None and not any("=" in words[0] for words in commands):
        found = analyze(text)
        assert (found.commands, found.fault) == (commands, "")


_PRINTS = "exec 9>&1; p() { printf '%s\\0' p \"$@\" $'\\1' >&9; }; "


@given(
    st.lists(
        st.sampled_from(
            [
                *(" ", " ", "\t", "\n", ";", "&&", "|", "'a b'", '"c d"', "''", "2>&1", ">/dev/null", "&>/dev/null"),
                *(" 1", " 2", " 13", "2", "=", "%", "-", "@", ",", ".", "/", "~", "#", "x", " p ", "; p "),
            ]
        ),
        max_size=10,
    ).map("".join)
)
@settings(max_examples=300)
def test_plain_text_has_the_words_that_bash_passes(text: str) -> None:
    commands = plain(text := "p " + text)
    if commands is not None and "||" not in text and all(words[0] == "p" for words in commands):
        ran = subprocess.run(["bash", "-c", _PRINTS + text], capture_output=True, text=True, check=True)
        seen = [tuple(words.split("\0")[:-1]) for words in ran.stdout.split("\1\0")[:-1]]
        assert sorted(seen) == sorted(commands)


def test_rule_does_not_cover_variables_or_input_of_the_request() -> None:
    policy, rules = Policy(confirm="queue"), (Rule(("sort",)),)
    assert policy.judge(Request(b"sort"), remembered=rules).remembered == rules
    for request in (Request(b"sort", env={"X": "1"}), Request(b"sort", stdin=b"x"), Request(b"sort", stdin=TTY)):
        assert policy.judge(request, remembered=rules).question == "sort"


def test_rule_and_allow_cover_a_text_together_and_deny_comes_first() -> None:
    policy = Policy(allow=["echo"], deny_commands=["rm"], confirm="queue")
    assert policy.judge(Request(b"echo x && ls"), remembered=[Rule(("ls",))]).question == ""
    assert policy.judge(Request(b"echo x && ls -l"), remembered=[Rule(("ls",))]).question
    with pytest.raises(Exception, match="'rm' is denied"):
        policy.judge(Request(b"rm"), remembered=[Rule(("rm",))])


def test_queue_in_this_process_is_refused() -> None:
    policy = Policy(confirm="queue")
    assert Policy.from_dict(policy.to_dict()) == policy
    for refused in (lambda: Session(policy=policy), lambda: policy.check("ls")):
        with pytest.raises(InvalidRequest, match="wait in the daemon, and this session has none"):
            refused()
    with pytest.raises(InvalidRequest, match='or "queue", not'):
        Policy(confirm="other")  # type: ignore[arg-type]


def _question(*rules: tuple[str, ...]) -> Question:
    return Question(
        id="q", agent="a", command="ls", cwd="/", digest="d", request="r", asked=0.0, until=10.0, rules=rules
    )


@pytest.mark.parametrize(("until", "used_by"), [(None, 601.0), (10.0, 10.0), (1000.0, 601.0)])
def test_answer_that_nobody_uses_is_over_with_its_question_or_after_ten_minutes(
    until: float | None, used_by: float
) -> None:
    answered = replace(_question(("ls",)), until=until).answered("accept", _ME, 1.0)
    assert (answered.is_over(used_by - 0.1), answered.is_over(used_by)) == (False, True)


def test_prefix_takes_the_place_of_the_rules_that_begin_with_it() -> None:
    asked = _question(("cd", "/srv"), ("git", "push", "-f"), ("git", "push"))
    answered = asked.answered("accept_rule", _ME, 1.0, prefix=("git", "push"))
    assert answered.accepts == (Rule(("cd", "/srv")), Rule(("git", "push"), is_prefix=True))
    assert answered.proposal == answered.record["rule"] == "cd /srv; git push ..."
    assert Question.from_dict(answered.to_dict()) == answered
    assert asked.proposal == "cd /srv; git push -f; git push"


@pytest.mark.parametrize("prefix", [("git", "pull"), ("git", "push", "-f", "x"), ("gi",), ("push",)])
def test_prefix_of_no_rule_is_refused_and_the_question_stays_open(prefix: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="is not the beginning of a rule that question q proposes: git push -f"):
        _question(("git", "push", "-f")).answered("accept_rule", _ME, 1.0, prefix=prefix)
    with pytest.raises(InvalidRequest, match="is not the beginning"):
        _question(("ls",)).answered("accept", _ME, 1.0, prefix=("ls",))


@given(st.lists(st.sampled_from(["accept", "accept_session", "accept_rule", "decline", "cancel", "late"]), max_size=5))
def test_question_has_the_first_answer_for_good(answers: list[str]) -> None:
    question = _question(("ls",))
    now, first = 1.0, ""
    for answer in answers:
        if answer == "late":
            now = 11.0
            continue
        try:
            question = question.answered(answer, _ME, now)
        except InvalidRequest:
            assert first or now > 10
        else:
            assert not first
            assert now < 10
            first = answer
    state = {"": "expired" if now > 10 else "open", "decline": "declined", "cancel": "cancelled"}.get(first, "accepted")
    assert question.at(now).state == state
    assert (question.at(now).refusal == "") == (state == "accepted")
    assert Question.from_dict(question.to_dict()) == question
