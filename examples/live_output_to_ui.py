"""Show output in a user interface while the command runs: `on_output` puts it into a queue, which the interface reads.

The tools of all SDKs take `on_output` as well: `langchain.tools(sh, on_output=show)`.

Run:     python examples/live_output_to_ui.py
Prints:  [running] stdout: compiling 3 of 3
"""

import asyncio
from codecs import getincrementaldecoder

from shellsession import AsyncSession

BUILD = """
for n in 1 2 3; do echo "compiling $n of 3"; sleep 0.1; done
echo 'one warning: naïve code' >&2
"""


async def draw(screen: asyncio.Queue[tuple[str, str]], sh: AsyncSession) -> None:
    """The user interface. Yours would write to a web socket, or to a window."""
    while True:
        stream, text = await screen.get()
        for line in text.splitlines():
            print(f"[{sh.state}] {stream}: {line}", flush=True)
        screen.task_done()


async def main() -> None:
    screen: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
    # Output comes in pieces of bytes, which can end within a character.
    decoders = {name: getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

    def show(stream: str, data: bytes) -> None:
        screen.put_nowait((stream, decoders[stream].decode(data)))

    async with AsyncSession(tty=False, timeout=60) as sh:
        drawing = asyncio.create_task(draw(screen, sh))
        result = await sh.run(BUILD, on_output=show)
        await screen.join()
        drawing.cancel()
    print(f"done: exit status {result.exit_code}, {len(result.stdout_bytes)} bytes of stdout")


if __name__ == "__main__":
    asyncio.run(main())
