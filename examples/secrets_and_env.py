"""Keep secrets from the model: out of the environment, only for one command, or masked where they are printed.

Run:     python examples/secrets_and_env.py
Prints:  the model reads: url = https://ann:***@example.org
"""

import os

from shellsession import Session

os.environ["API_TOKEN"] = "tok-1234"  # such as your program has it


def main() -> None:
    # Bash starts with these variables, and with no others of yours.
    clean = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}

    with Session(env=clean, tty=False, redact=True) as sh:
        result = sh.run("echo ${API_TOKEN-not set}")
        print(f"in the session: {result.stdout.strip()}")

        # A variable for one command alone.
        result = sh.run("echo ${#API_TOKEN} characters", env={"API_TOKEN": os.environ["API_TOKEN"]})
        print(f"with env=: {result.stdout.strip()}")
        print(f"afterwards: {sh.run('echo ${API_TOKEN-not set}').stdout.strip()}")

        # On stdin it is in no environment, no argument list and no log.
        result = sh.run("read -r token; echo ${#token} characters", stdin=os.environ["API_TOKEN"] + "\n")
        print(f"with stdin=: {result.stdout.strip()}")

        # The result has the exact bytes. The tools for models mask what looks like a secret, and so does this:
        result = sh.run("echo url = https://ann:pa55word@example.org")
        print(f"the model reads: {result.for_model(redact=sh.redact)}")


if __name__ == "__main__":
    main()
