"""Search with forks: each branch is a shell of its own, with the state of the one that it came from.

Run:     python examples/tree_search.py
Prints:  10 is reached by: double, double, inc, double
"""

from contextlib import ExitStack

from shellsession import Session, ShellSessionError

MOVES = ("double", "inc")
GOAL, DEPTH = 10, 4


def search() -> list[str] | None:
    """Return the moves that lead from 1 to the goal, the fewest first."""
    with ExitStack() as shells:
        root = shells.enter_context(Session(tty=False))
        root.run("n=1; double() { ((n *= 2)); }; inc() { ((n += 1)); }")
        level: list[tuple[Session, list[str]]] = [(root, [])]
        for _ in range(DEPTH):
            following: list[tuple[Session, list[str]]] = []
            for parent, moves in level:
                for move, child in zip(MOVES, parent.fork_many(len(MOVES)), strict=True):
                    if isinstance(child, ShellSessionError):
                        raise child
                    following.append((shells.enter_context(child), [*moves, move]))
                    if int(child.run(f"{move}; echo $n").stdout) == GOAL:
                        return following[-1][1]
            level = following
    return None


def main() -> None:
    moves = search()
    print(f"{GOAL} is reached by: {', '.join(moves)}" if moves else f"{GOAL} is not reached in {DEPTH} moves")


if __name__ == "__main__":
    main()
