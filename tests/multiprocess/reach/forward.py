"""Port mapping as a router or a container engine does it: accepts and passes on, whoever is there.

usage: forward.py LISTEN_HOST:PORT=TO_HOST:PORT...
"""
import asyncio
import sys


async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def serve(mapping):
    here, there = (end.rsplit(":", 1) for end in mapping.split("="))

    async def connected(reader, writer):
        try:
            to_reader, to_writer = await asyncio.open_connection(*there)
        except OSError:
            writer.close()
            return
        await asyncio.gather(pump(reader, to_writer), pump(to_reader, writer))

    return await asyncio.start_server(connected, *here)


async def main():
    servers = [await serve(mapping) for mapping in sys.argv[1:]]
    print("ready", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


if __name__ == "__main__":
    asyncio.run(main())
