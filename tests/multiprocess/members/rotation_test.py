"""The authority's key is rotated under a run that trains: members who connect meanwhile notice nothing, and what the old key
has signed, or signs later, is nobody's after its end.

usage: rotation_test.py BIN_DIR
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import members_test as members
from members_test import User, check, handshake_fails, new_token, start_workers, training
from http2 import tls_as

OVERLAP_S = 20  # the run and the members are back long before that
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----\n", re.S)


def authorities_of(identity):
    """The certificates of the authorities that a member trusts."""
    return CERTIFICATE.findall(identity.read_text())[1:]


def forge(cluster, old_key, identity, name):
    """What a thief of the old key signs: a certificate of a member's name, role and key."""
    folder = cluster.folder / "forge"
    folder.mkdir(exist_ok=True)
    (folder / "old.pem").write_text(old_key)
    key = re.search("-----BEGIN PRIVATE KEY-----.*?-----END PRIVATE KEY-----\n", identity.read_text(), re.S)[0]
    (folder / "key.pem").write_text(key)
    (folder / "extensions").write_text("basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                                       "extendedKeyUsage=clientAuth\n")
    run = lambda *words: subprocess.run(["openssl", *words], check=True, cwd=folder, capture_output=True)  # noqa: E731
    run("req", "-new", "-key", "key.pem", "-out", "request.pem", "-subj", f"/O=longhaul/OU=user/CN={name}")
    run("x509", "-req", "-in", "request.pem", "-CA", "old.pem", "-CAkey", "old.pem", "-out", "forged.pem", "-days", "30",
        "-extfile", "extensions", "-CAcreateserial")
    forged = folder / "whole.pem"
    forged.write_text(key + (folder / "forged.pem").read_text())
    return forged


def coordinator(cluster, *arguments):
    return subprocess.run([cluster.programs / "longhaul-coordinator", *arguments, "--state-dir",
                           cluster.folder / "coordinator", "--token-file", cluster.token],
                          capture_output=True, text=True, check=False, timeout=training.DEADLINE_S)


def at_once(programs, folder):
    """Without an overlap the old key is nobody's from the start on: also for whoever has learnt nothing of it."""
    state = folder / "at-once"
    daemon = [programs / "longhaul-coordinator", "--state-dir", state]
    flags = ["--listen", "127.0.0.1:0"]
    log = open(folder / "at-once.log", "w", encoding="utf-8")

    def start():
        (state / "address").unlink(missing_ok=True)
        process = subprocess.Popen([*daemon, *flags], stdout=log, stderr=log)
        training.wait_for("its address", (state / "address").exists)
        return process, (state / "address").read_text().strip()

    def ps(address, home):
        return subprocess.run([programs / "longhaul", "ps", "--coordinator", address, "--token-file", state / "token"],
                              env={**os.environ, "LONGHAUL_IDENTITY": str(folder / f"{home}.pem")}, capture_output=True,
                              text=True, check=False, timeout=training.DEADLINE_S)

    process, address = start()
    check(ps(address, "first").returncode == 0, "nobody may join")
    kept, token = folder / "first.pem", (state / "token").read_text()
    process.terminate()
    process.wait()
    rotated = subprocess.run([*daemon, "rotate-authority", "--overlap", "0s"], capture_output=True, text=True, check=False,
                             timeout=training.DEADLINE_S)
    check(rotated.returncode == 0 and "counts no longer" in rotated.stdout, rotated.stdout, rotated.stderr)
    check((state / "authority.pem").read_text().count("PRIVATE KEY") == 2, "the old key is kept")
    check((state / "token").read_text() != token, "the token is that of before")
    process, address = start()
    try:
        check(handshake_fails(address, tls_as(kept)), "the old authority's member was taken")
        old = folder / "old.token"
        old.write_text(token)
        old.chmod(0o600)
        refused = subprocess.run([programs / "longhaul", "ps", "--coordinator", address, "--token-file", old],
                                 env={**os.environ, "LONGHAUL_IDENTITY": str(folder / "thief.pem")}, capture_output=True,
                                 text=True, check=False, timeout=training.DEADLINE_S)
        check(refused.returncode == 1 and "another authority" in refused.stderr, refused.stderr)
        # The new token of its state directory makes members of everybody again, by itself.
        check(ps(address, "first").returncode == 0, "the member cannot come back")
    finally:
        process.terminate()
        process.wait()
    print("ok: an authority's key was replaced at once", flush=True)


def main():
    programs = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="longhaul-rotation-") as folder:
        training.text_for_training(folder)
        with training.Cluster(programs, folder, workers=0) as cluster:
            _, _, proxies = start_workers(cluster)
            for proxy in proxies:
                proxy.pause_s = 0.1  # all its steps are repeated below
            run = members.begin(cluster, "guarded")
            online, offline = (User(cluster, name, new_token(cluster, "user", 1)) for name in ("online", "offline"))
            for user in (online, offline):
                user.cli("ps")
            old_token = new_token(cluster, "user", 5)
            identity = {user.name: next((cluster.folder / user.name).glob("*.pem")) for user in (online, offline)}
            kept = cluster.folder / "kept.pem"
            kept.write_text(identity["online"].read_text())
            old_key = (cluster.folder / "coordinator/authority.pem").read_text()
            old = authorities_of(kept)
            refused = coordinator(cluster, "rotate-authority")
            check(refused.returncode == 1 and "in use by another coordinator" in refused.stderr, refused.stderr)
            check((cluster.folder / "coordinator/authority.pem").read_text() == old_key, "the key has changed")

            cluster.processes["coordinator"].terminate()
            cluster.processes["coordinator"].wait()
            rotated = coordinator(cluster, "rotate-authority", "--overlap", f"{OVERLAP_S}s")
            check(rotated.returncode == 0 and "counts until" in rotated.stdout, rotated.stdout, rotated.stderr)
            again = coordinator(cluster, "rotate-authority")
            check(again.returncode == 1 and "was rotated already" in again.stderr, again.stderr)
            cluster.start("coordinator", "longhaul-coordinator", "--listen", cluster.address, "--http", "127.0.0.1:0")
            training.wait_for("the coordinator again", lambda: cluster.cli("ps", check=False).returncode == 0)
            training.wait_for("the workers again", lambda: len(cluster.connected()) == 2)

            # While both count: whoever calls learns the new one, and new members know both.
            online.cli("ps")
            check(len(authorities_of(identity["online"])) == 2, "the new authority was not learnt")
            new = authorities_of(identity["online"])[0]
            check(new not in old, "the authority is the old one")
            check(authorities_of(identity["offline"]) == old, "somebody else's credentials have changed")
            late = User(cluster, "late", old_token)
            late.cli("ps")
            check(not handshake_fails(cluster.address, tls_as(kept)), "a certificate of before was refused too early")
            training.wait_for("the workers' new certificates", lambda: all(
                len(authorities_of(cluster.folder / f"worker{n}/identity.pem")) == 2 for n in (1, 2)))
            forged = forge(cluster, old_key, identity["online"], "online")
            check(not handshake_fails(cluster.address, tls_as(forged)), "the forged certificate is no good attempt")

            # After the end of the old one.
            training.wait_for("the end of the old authority", lambda: handshake_fails(cluster.address, tls_as(kept)))
            check(handshake_fails(cluster.address, tls_as(forged)), "the old key makes members")
            check(not handshake_fails(cluster.address, tls_as(identity["online"], new)), "it shows another authority")
            check(handshake_fails(cluster.address, tls_as(identity["online"], old[0])), "it shows the old authority")
            online.cli("ps")
            late.cli("ps")
            done = subprocess.run(offline.command("ps"), env=offline.environment, capture_output=True, text=True,
                                  check=False, timeout=training.DEADLINE_S)
            check(done.returncode == 1 and "join" in done.stderr, done.stderr)
            print("a member that was away is told:", done.stderr.strip(), flush=True)
            User(cluster, "nobody", old_token).cli("ps", code=1, says="has another authority")
            offline.token_file = new_token(cluster, "user", 1)
            offline.cli("ps")
            check("\toffline-2\t" in "\t" + cluster.cli("members").stdout.replace("\n", "\n\t"), "it has not joined")
            audit = cluster.cli("audit").stdout
            check("\trotate-authority\t" in audit, audit)

            # The run has trained through all of it, in one epoch.
            before = cluster.step(run)
            training.wait_for("two more steps", lambda: cluster.step(run) > before + 1)
            status = cluster.status(run)
            check(status["state"] == "running" and int(status["epoch"]) == 1, status["state"], status["epoch"])
            guarded = cluster.end(run)
            for proxy in proxies:
                proxy.pause_s = 0
            calm = members.begin(cluster, "calm")
            training.wait_for("as many steps", lambda: cluster.step(calm) >= len(guarded))
            training.expect_equal("during a rotation and undisturbed", guarded, cluster.end(calm)[:len(guarded)])
            for name, process in cluster.processes.items():
                check(process.poll() is None, name, "has ended")
        at_once(programs, pathlib.Path(folder))
    print("ok: the authority's key was rotated under a run", flush=True)


if __name__ == "__main__":
    os.umask(0o022)
    main()
