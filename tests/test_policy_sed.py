"""What sed runs by its script is judged, and an ordinary script is not refused."""

from __future__ import annotations

import pytest
from policies import verdict

from shellsession.policy.rules import Policy

# Each runs rm, and says so.
_RUN = [
    *("sed '1e rm x' f", "sed -n '$!e rm' f", "gsed '/a/,/b/e rm x' f", "sed -e p -e '2,5{e rm x' -e '}' f"),
    *("sed -ne'1e rm x' f", "sed --expression='1e rm x' f", "sed --expr '1e rm x' f", "sed -i.bak -Ee 'e rm x' f"),
    *("sed -ie '1e rm x' f", "sed -- '1e rm x' f", "sed '1e rm x' -n -e p f", "env sed '1!e rm x' f"),
    *("sed 's/.*/rm x/e' f", "sed 's|a|rm|2ge' f", "sed -E 's/[/]|e/rm/eg' f", "sed 's/a/\\n/;s,^,rm ,e;p' f"),
    *("sed ':a;e rm x' f", "sed 'ba#;i\\\ne rm x' f", "sed 'a\\\\\ne rm x' f", "sed 'y/a\\/b/xyz/;e rm' f"),
    *("sed 'a\\ \ne rm x' f", "sed 'i\\\t\ns/.*/rm x/e' f", "sed -e 'a\\ ' -e '1e rm x' f"),
    *("sed -e 'a\\' -f f -e 'e rm x' g", 'sed "1e rm $X" f', 'sed "s/$A/rm $B/e" f', "xargs -I% sed '1e rm %' f"),
]


@pytest.mark.parametrize("command", _RUN)
def test_what_a_script_runs_is_found(command: str) -> None:
    """Where a label ends at a ``#`` depends on the version of sed: that is untold."""
    assert verdict(Policy(deny_commands=["rm"]), command) == ("'rm' is denied" if "ba#" not in command else "")
    assert verdict(Policy(deny_commands=["rm"], strict=True), command)
    assert verdict(Policy(allow=["sed", "gsed", "env", "xargs"]), command)


@pytest.mark.parametrize(
    "command",
    [
        *("sed e f", "sed 's/a/b/e' f", "sed '1e r\\x6d' f", 'sed "$X" f', 'sed "s/a/b/$X" f', 'sed "/a/$X" f'),
        *("sed -f - f", "sed -f /dev/stdin f <<'E'\n1e rm\nE", "sed -f <(echo 1e rm) f", 'sed -n -f "$X" f'),
        *(
            'sed -"$X" f',
            'sed --expression="$X" f',
            "sed {1e,p} f",
            "xargs -I% sed %",
            "sed 's/a/b' f",
            'sed "s${X}a" f',
        ),
        'sed "s/a/b/;$X" f',
    ],
)
def test_what_a_script_leaves_untold_is_not_allowed(command: str) -> None:
    assert verdict(Policy(strict=True), command).startswith("it does not say ")
    assert verdict(Policy(allow=["sed", "xargs", "echo", "b"]), command)


@pytest.mark.parametrize(
    "command",
    [
        *(
            "sed 's/e/E/' f",
            "sed 's|a|e|g' f",
            "sed '/re/d' f",
            "sed y/abc/xye/ f",
            "sed -n 2,5p f",
            "sed 'a\\ e rm' f",
        ),
        *(
            "sed '1i e rm' f",
            "sed 's/x/y/we file' f",
            "sed -n '/e/{p;=;}' f",
            "sed -i.e 's/e/x/' f",
            "sed -i '' s/a/b/ f",
        ),
        *("sed ':a;N;$!ba;s/\\n/ /g' f", "sed -e :a -e '$!N;s/\\n//;ta' f", "sed '1!G;h;$!d' f", "sed '0,/x/s//e/' f"),
        *("sed 's/[/]/e/' f", "sed 's/[][]//g;s/[^[:alnum:]e]/_/' f", "sed 's/,/\\\ne rm/' f", "sed 's/\\//e/g' f"),
        *("sed '/x/{n;s/x/e/};1~2d;2,~4p;/a/,+2d' f", "sed 's/a/b/2g ; s/c/d/I # e\ns/e//' f", "sed --version"),
        *(
            "sed -e 'a\\' -e 'e rm' f",
            "sed '1i\\\ne rm\\\ne rm' f",
            "sed '/e/r e' f",
            "sed -f e.sed f",
            "sed -n '$=' f",
        ),
        *('sed "s/V/$V/g" f', 'sed -i "s|@P@|$P|;/$re/d" "$f"', 'sed -n "${a},${b}p" f', 'sed -n "$((n-1)),\\$p" $f'),
        *(
            'sed "${n}d;$a!d;${n}q" f',
            'sed "/x/a $l" f',
            'sed "${n}i\\\\ $l" f',
            "sed 's/e/'\"$E\"'/' f",
            "sed s,$A,e, f",
        ),
        *("xargs -I{} sed -i 's/{}/e/' f", "find . -exec sed -i 's/e/x/' {} +", "ssh h \"sed -i 's/e/x/' f\""),
        "sed -e 's/e/x/' -e '/y/{' -e p -e '}' --line-length 5 --in-place --quiet f",
    ],
)
def test_an_ordinary_script_is_not_refused(command: str) -> None:
    assert verdict(Policy(deny_commands=["rm", "rm*"], strict=True), command) == ""
    assert verdict(Policy(allow=["sed", "xargs", "find", "ssh"]), command) == ""
