"""Show output in a user interface while the command runs, with a Stop button.

`on_output` gets the output piece by piece. The tools of all SDKs take it, too: `langchain.tools(sh, on_output=show)`.

Run:     python examples/live_output_to_ui.py
Prints:  stdout: compiling 3
"""

import asyncio
from codecs import getincrementaldecoder

from shellsession import AsyncSession

BUILD = """
echo 'one warning: naïve code' >&2
for ((n = 1; ; n++)); do echo "compiling $n"; sleep 0.05; done
"""


async def draw(screen: asyncio.Queue[tuple[str, str]], sh: AsyncSession) -> None:
    """The user interface. Yours would write to a web socket or a window. Its user presses Stop after a while."""
    text = ""
    while "compiling 3" not in text:
        stream, text = await screen.get()
        for line in text.splitlines():
            print(f"{stream}: {line}")
    await sh.interrupt()


async def main() -> None:
    screen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    # A piece is bytes, and can end within a character.
    decoders = {name: getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def show(stream: str, data: bytes) -> None:
        screen.put_nowait((stream, decoders[stream].decode(data)))

    async with AsyncSession(tty=False, timeout=60) as sh:
        drawing = asyncio.create_task(draw(screen, sh))
        result = await sh.run(BUILD, on_output=show)
        await drawing
        print(f"The command was {result.outcome}; is the shell kept? {result.state_kept}")


if __name__ == "__main__":
    asyncio.run(main())
